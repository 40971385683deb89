'use strict'
// One run of `subscribe`: a member of a group that reads until SIGTERM, and its log of everything that it saw.

const fs = require('node:fs')
const { Kafka, logLevel } = require('kafkajs')

class Subscribe {
  constructor(options) {
    this.options = options
    this.log = fs.openSync(options.log, 'a')
    this.summary = { records: 0 }
    this.succeeded = true
    this.stopped = new Promise(resolve => process.on('SIGTERM', resolve))
  }

  async run() {
    const { bootstrap, topic, group } = this.options
    const session = Number(this.options['session-timeout-ms'])
    // It asks for the coordinator again only when it has given up, and then starts again by itself.
    const retry = { initialRetryTime: 50, maxRetryTime: 1000, retries: 5 }
    const kafka = new Kafka({ retry, brokers: bootstrap.split(','), logLevel: logLevel.WARN })
    const consumer = kafka.consumer({
      groupId: group,
      sessionTimeout: session,
      heartbeatInterval: session / 10,
      rebalanceTimeout: 30000,
      maxWaitTimeInMs: 200,
      metadataMaxAge: 5000,
      retry,
    })
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      this.note('assigned', -1, ...(payload.memberAssignment[topic] ?? []))
    })
    consumer.on(consumer.events.REBALANCING, () => this.note('rebalancing'))
    consumer.on(consumer.events.CRASH, ({ payload }) => this.note('crashed', payload.error.message))
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await consumer.run({ autoCommit: false, eachBatch: given => this.read(consumer, given) })
    await this.stopped
    await consumer.disconnect()
  }

  async read(consumer, { batch, isRunning, isStale }) {
    if (!isRunning() || isStale()) return
    for (const { offset, value } of batch.messages) {
      this.summary.records++
      this.note('record', batch.partition, offset, value)
    }
    const offset = String(BigInt(batch.lastOffset()) + 1n)
    this.note('committing', batch.partition, offset)
    try {
      await consumer.commitOffsets([{ topic: batch.topic, partition: batch.partition, offset }])
    } catch (error) {
      // Thrown from here it would end the consumer; the next heartbeat finds out what is wrong, and joins again.
      this.note('failed', error.message)
      return
    }
    // Once it is being disconnected, kafkajs resolves commits that it has not made.
    if (isRunning()) this.note('committed', batch.partition, offset)
  }

  note(...parts) {
    fs.writeSync(this.log, `${BigInt(Date.now()) * 1000n} ${parts.join(' ').replaceAll('\n', ' ')}\n`)
  }
}

module.exports = { Subscribe }
