// What the programs have in common: each prints one line of JSON for a step, with its answer or the type of its error.
'use strict'

const { readFileSync } = require('fs')
const { Kafka, logLevel } = require('kafkajs')

const errorType = (error) => {
  if (error.errors) return error.errors.map(errorType).join()
  return error.type || (error.cause ? errorType(error.cause) : error.name)
}

const step = async (name, work) => {
  let line
  try {
    line = { name, answer: await work() }
  } catch (error) {
    line = { name, error: errorType(error) }
  }
  console.log(JSON.stringify(line))
}

// How to log in: {"ca": PATH, "mechanism": NAME, "username": …, "password": …, "token": …} in a variable, or nothing.
const login = () => {
  const { ca, mechanism, username, password, token } = JSON.parse(process.env.KAFKAJS_LOGIN || '{}')
  const how = ca ? { ssl: { ca: [readFileSync(ca, 'utf-8')] } } : {}
  if (!mechanism) return how
  const who = token ? { oauthBearerProvider: async () => ({ value: token }) } : { username, password }
  return { ...how, sasl: { mechanism, ...who } }
}

exports.run = (program) => {
  const [bootstrap, topic] = process.argv.slice(2)
  const kafka = new Kafka({
    clientId: 'penstock-tests', brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 2, initialRetryTime: 20 },
    ...login(),
  })
  program(kafka, step, topic).catch((error) => {
    console.error(error)
    process.exitCode = 1
  })
}
