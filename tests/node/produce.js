// Writing with kafkajs's producer, rightly and wrongly: produce.js HOST:PORT TOPIC. The topic has three partitions.
'use strict'

const { CompressionTypes, Partitioners } = require('kafkajs')
const { run } = require('./steps')

run(async (kafka, step, topic) => {
  const createPartitioner = Partitioners.DefaultPartitioner
  const where = (sent) => sent.map(({ partition, errorCode, baseOffset }) => ({ partition, errorCode, baseOffset }))
  const send = (producer, options, ...messages) => async () => where(await producer.send({ topic, ...options, messages }))
  const plain = kafka.producer({ createPartitioner })
  const idempotent = kafka.producer({ createPartitioner, idempotent: true, maxInFlightRequests: 1 })
  await plain.connect()
  await idempotent.connect()

  await step('plain', send(plain, {}, { key: 'k', value: 'plain', partition: 0 }))
  await step('acks 1', send(plain, { acks: 1 }, { key: 'k', value: 'one', partition: 0 }))
  await step('acks 0', async () => {
    await plain.send({ topic, acks: 0, messages: [{ key: 'k', value: 'zero', partition: 0 }] })
    return 'sent'
  })
  await step('nothing', send(plain, {}, { key: null, value: null, partition: 0 }))
  await step('headers', send(plain, {}, {
    key: 'k', value: 'headers', partition: 0, timestamp: '1700000000000', headers: { trace: ['1', '2'], bytes: Buffer.from([0, 255]) },
  }))
  const hundred = Array.from({ length: 100 }, (_, i) => ({ key: 'k', value: `gzip ${i}`, partition: 0 }))
  await step('gzip', send(plain, { compression: CompressionTypes.GZIP }, ...hundred))
  await step('idempotent', send(idempotent, {}, { key: 'k', value: 'idempotent', partition: 0 }))
  await step('idempotent gzip', send(idempotent, { compression: CompressionTypes.GZIP }, ...hundred))
  await step('by key', async () => {
    const chosen = {}
    for (const key of ['a', 'b', 'c', 'd', 'e', 'f']) {
      const [{ partition }] = await plain.send({ topic, messages: [{ key, value: key }] })
      chosen[key] = partition
    }
    return chosen
  })
  await step('several topics', async () => {
    const sent = await plain.sendBatch({
      topicMessages: [topic, `${topic}-second`].map((name) => ({ topic: name, messages: [{ value: 'both', partition: 0 }] })),
    })
    return sent.map(({ topicName, errorCode }) => `${topicName.slice(topic.length)}:${errorCode}`).sort()
  })
  await step('in parallel', async () => {
    const sends = Array.from({ length: 200 }, (_, i) => plain.send({ topic, messages: [{ value: `${i}`, partition: 2 }] }))
    const offsets = (await Promise.all(sends)).map(([{ baseOffset }]) => Number(baseOffset))
    return new Set(offsets).size
  })
  await step('too large', send(plain, {}, { value: Buffer.alloc(2000000), partition: 0 }))

  const careful = kafka.producer({ createPartitioner, allowAutoTopicCreation: false, retry: { retries: 0 } })
  await careful.connect()
  await step('an unknown topic', async () => where(await careful.send({ topic: `${topic}-unknown`, messages: [{ value: 'x' }] })))
  await step('an impossible topic', async () => where(await careful.send({ topic: 'bad/name', messages: [{ value: 'x' }] })))
  await Promise.all([plain, idempotent, careful].map((producer) => producer.disconnect()))
})
