// One message there and back over a connection that may want a login: login.js HOST:PORT TOPIC, and see steps.js.
'use strict'

const { Partitioners } = require('kafkajs')
const { run } = require('./steps')

run(async (kafka, step, topic) => {
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner })
  await step('produce', async () => {
    await producer.connect()
    const [row] = await producer.send({ topic, messages: [{ partition: 0, value: 'hello' }] })
    return row.errorCode
  })
  await producer.disconnect()
  const consumer = kafka.consumer({ groupId: topic })
  await step('consume', async () => {
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    return new Promise((resolve) => consumer.run({ eachMessage: async ({ message }) => resolve(message.value.toString()) }))
  })
  await consumer.disconnect()
})
