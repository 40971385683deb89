'use strict'
// kafkajs: `transact BOOTSTRAP TOPIC PARTITIONS GROUP INPUTS` or `read BOOTSTRAP TOPIC PARTITIONS` (families.py says what these do).

const readline = require('node:readline')
const { Kafka, logLevel } = require('kafkajs')

const [mode, bootstrap, topic, partitionCount, group, inputs] = process.argv.slice(2)
const partitions = Number(partitionCount)
const kafka = new Kafka({
  brokers: bootstrap.split(','),
  logLevel: logLevel.NOTHING,
  connectionTimeout: 2000,
  retry: { initialRetryTime: 50, maxRetryTime: 1000, retries: 20 },
})

async function connected() {
  const producer = kafka.producer({ transactionalId: 'kafkajs', idempotent: true, maxInFlightRequests: 1, transactionTimeout: 30000 })
  await producer.connect()
  return producer
}

async function transact() {
  let producer = null
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [first, count, end] = line.split(' ')
    const numbers = Array.from({ length: Number(count) }, (_, one) => Number(first) + one)
    try {
      producer = producer ?? (await connected())
      const transaction = await producer.transaction()
      const messages = numbers.map(one => ({ value: String(one), partition: one % partitions }))
      await transaction.send({ topic, acks: -1, messages })
      const offset = String(Number(first) + Number(count))
      await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic: inputs, partitions: [{ partition: 0, offset }] }] })
      await (end === 'commit' ? transaction.commit() : transaction.abort())
      console.log('ok')
    } catch (error) {
      producer?.disconnect().catch(() => {})
      producer = null
      console.log(`failed ${error.message}`)
    }
  }
  process.exit(0)
}

async function read() {
  const consumer = kafka.consumer({ groupId: 'kafkajs-reader', maxWaitTimeInMs: 100 })
  const found = []
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await new Promise(resolve => {
    let ended = 0
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        const value = message.value.toString()
        found.push([partition, Number(message.offset), value])
        if (value === 'end' && ++ended === partitions) resolve()
      },
    })
  })
  process.stdout.write(JSON.stringify(found), () => process.exit(0))
}

;(mode === 'read' ? read() : transact()).catch(error => {
  process.stderr.write(`${error.stack}\n`)
  process.exit(1)
})
