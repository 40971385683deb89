'use strict'
// The story of test_client_families.py with kafkajs: bootstrap address, topic, and the values of each transaction as JSON.

const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, topic, values] = process.argv.slice(2)
const { first, second, fenced, third, partitions, group, offset } = JSON.parse(values)
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.ERROR })

async function begun(producer, texts) {
  const transaction = await producer.transaction()
  const messages = texts.map((value, number) => ({ value, partition: number % partitions }))
  await transaction.send({ topic, acks: -1, messages })
  return transaction
}

async function instance() {
  const producer = kafka.producer({ transactionalId: 'kafkajs', idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  return producer
}

async function read(readUncommitted) {
  const consumer = kafka.consumer({ groupId: `reader-${readUncommitted}`, readUncommitted, maxWaitTimeInMs: 100 })
  const found = []
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await new Promise(resolve => {
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ message }) => {
        found.push(message.value.toString())
        if (third.every(value => found.includes(value))) resolve()
      },
    })
  })
  await consumer.disconnect()
  return found.sort()
}

async function main() {
  const old = await instance()
  const committed = await begun(old, first)
  await committed.sendOffsets({
    consumerGroupId: group,
    topics: [{ topic, partitions: [{ partition: 0, offset: String(offset) }] }],
  })
  await committed.commit()
  const aborted = await begun(old, second)
  await aborted.sendOffsets({
    consumerGroupId: group,
    topics: [{ topic, partitions: [{ partition: 0, offset: String(offset + 1) }] }],
  })
  await aborted.abort()
  const late = await begun(old, fenced)
  const young = await instance()
  const last = await begun(young, third)
  const error = await late.commit().then(() => null, one => one.type || one.name)
  await last.commit()
  const outcome = { error, committed: await read(false), uncommitted: await read(true) }
  process.stdout.write(JSON.stringify(outcome), () => process.exit(0))
}

main().catch(error => {
  process.stderr.write(`${error.stack}\n`)
  process.exit(1)
})
