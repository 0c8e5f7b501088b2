// What the programs have in common: each prints one line of JSON for a step, with its answer or the type of its error.
'use strict'

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

exports.run = (program) => {
  const [bootstrap, topic] = process.argv.slice(2)
  const kafka = new Kafka({
    clientId: 'penstock-tests', brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 2, initialRetryTime: 20 },
  })
  program(kafka, step, topic).catch((error) => {
    console.error(error)
    process.exitCode = 1
  })
}
