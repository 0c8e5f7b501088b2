// Everything kafkajs's admin client can do without groups, with right and wrong input: admin.js HOST:PORT TOPIC
'use strict'

const { ConfigResourceTypes } = require('kafkajs')
const { run } = require('./steps')

run(async (kafka, step, topic) => {
  const admin = kafka.admin()
  await admin.connect()
  const grown = { topic, count: 4 }

  await step('cluster', async () => {
    const { brokers, controller, clusterId } = await admin.describeCluster()
    return { brokers: brokers.map((broker) => broker.nodeId), controller, idLength: clusterId.length }
  })
  await step('try', () => admin.createTopics({ topics: [{ topic, numPartitions: 2 }], validateOnly: true, waitForLeaders: false }))
  await step('create', () => admin.createTopics({
    topics: [{ topic, numPartitions: 2, replicationFactor: 1, configEntries: [{ name: 'flush.ms', value: '5000' }] }],
    waitForLeaders: true,
  }))
  await step('create again', () => admin.createTopics({ topics: [{ topic }] }))
  for (const [name, wrong] of Object.entries({
    'no partitions': { topic: `${topic}-x`, numPartitions: 0 },
    'three replicas': { topic: `${topic}-x`, replicationFactor: 3 },
    'impossible name': { topic: 'bad/name' },
    'wrong setting': { topic: `${topic}-x`, configEntries: [{ name: 'flush.ms', value: 'abc' }] },
    'wrong assignment': {
      topic: `${topic}-x`, numPartitions: -1, replicationFactor: -1, replicaAssignment: [{ partition: 0, replicas: [7] }],
    },
  })) {
    await step(name, () => admin.createTopics({ topics: [wrong] }))
  }
  await step('list', async () => (await admin.listTopics()).filter((name) => name.startsWith(topic)))
  await step('metadata', async () => {
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
    return topics.map(({ name, partitions }) => ({
      name,
      partitions: partitions
        .map(({ partitionId, leader, replicas, isr }) => ({ partitionId, leader, replicas, isr }))
        .sort((a, b) => a.partitionId - b.partitionId),
    }))
  })
  await step('grow', () => admin.createPartitions({ topicPartitions: [grown] }))
  await step('grow again', () => admin.createPartitions({ topicPartitions: [grown] }))

  const resource = { type: ConfigResourceTypes.TOPIC, name: topic }
  const describe = async (names) => {
    const { resources } = await admin.describeConfigs({
      includeSynonyms: true, resources: [{ ...resource, configNames: names }],
    })
    return resources[0].configEntries
      .map(({ configName, configValue, configSource, isDefault, configSynonyms }) =>
        ({ configName, configValue, configSource, isDefault, synonyms: configSynonyms.length }))
      .sort((a, b) => (a.configName < b.configName ? -1 : 1))
  }
  await step('settings', () => describe(['flush.ms', 'max.message.bytes']))
  await step('alter', async () => {
    await admin.alterConfigs({ resources: [{ ...resource, configEntries: [{ name: 'max.message.bytes', value: '2000' }] }] })
    return describe(['flush.ms', 'max.message.bytes'])
  })
  await step('alter wrongly', () => admin.alterConfigs({
    resources: [{ ...resource, configEntries: [{ name: 'max.message.bytes', value: 'abc' }] }],
  }))
  await step('settings of an unknown topic', () => admin.describeConfigs({
    resources: [{ type: ConfigResourceTypes.TOPIC, name: `${topic}-unknown` }],
  }))
  await step('settings of a broker', async () => {
    const { resources } = await admin.describeConfigs({ resources: [{ type: ConfigResourceTypes.BROKER, name: '0' }] })
    return resources[0].configEntries.filter(({ configName }) => configName === 'message.max.bytes').map((entry) => entry.configValue)
  })

  const producer = kafka.producer()
  await producer.connect()
  const messages = [1000, 2000, 3000].map((time) => ({ key: 'key', value: `at ${time}`, timestamp: `${time}`, partition: 1 }))
  await admin.alterConfigs({ resources: [{ ...resource, configEntries: [{ name: 'retention.ms', value: '-1' }] }] })
  await producer.send({ topic, messages })
  await producer.disconnect()
  const ofPartition1 = (offsets) => offsets.filter(({ partition }) => partition === 1)
  await step('offsets', async () => ofPartition1(await admin.fetchTopicOffsets(topic)))
  await step('offsets by time', async () => ofPartition1(await admin.fetchTopicOffsetsByTimestamp(topic, 1500)))
  await step('offsets after all times', async () => ofPartition1(await admin.fetchTopicOffsetsByTimestamp(topic, 5000)))
  await step('delete records', async () => {
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 1, offset: '2' }] })
    return ofPartition1(await admin.fetchTopicOffsets(topic))
  })
  await step('delete records beyond the end', () =>
    admin.deleteTopicRecords({ topic, partitions: [{ partition: 1, offset: '20' }] }))
  await step('delete', async () => {
    await admin.deleteTopics({ topics: [topic] })
    return (await admin.listTopics()).filter((name) => name.startsWith(topic))
  })
  await step('delete again', () => admin.deleteTopics({ topics: [topic] }))
  await admin.disconnect()
})
