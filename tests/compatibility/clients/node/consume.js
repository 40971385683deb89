'use strict'
// One run of `consume`. kafkajs reads through consumer groups only, so each run has a group of its own.

const { createHash, randomUUID } = require('node:crypto')
const fs = require('node:fs')
const { Kafka, logLevel } = require('kafkajs')
const { securitySettings } = require('./security')

class Consume {
  constructor(options) {
    this.options = options
    this.records = options.records ? fs.openSync(options.records, 'w') : null
    this.partitions = new Map()
    this.summary = { partitions: {} }
    this.readAt = Date.now()
  }

  async run() {
    const { bootstrap, topic } = this.options
    const kafka = new Kafka({
      ...securitySettings(this.options.security),
      brokers: bootstrap.split(','),
      logLevel: logLevel.WARN,
    })
    await this.begin(kafka, topic)
    const consumer = kafka.consumer({ groupId: `consume-${randomUUID()}`, maxWaitTimeInMs: 200 })
    let crash = null
    consumer.on(consumer.events.CRASH, ({ payload }) => {
      crash = payload.error
    })
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await consumer.run({ autoCommit: false, eachBatch: async given => this.read(given) })
    while (!this.succeeded && crash === null && Date.now() - this.readAt < this.options['idle-timeout-ms']) {
      await new Promise(resolve => setTimeout(resolve, 20))
    }
    if (crash !== null) process.stderr.write(`${crash.stack}\n`)
    await consumer.disconnect()
    for (const [partition, one] of this.partitions) {
      const { count, first_offset, next_offset, gaps, sha } = one
      this.summary.partitions[partition] = { count, first_offset, next_offset, gaps, digest: sha.digest('hex') }
    }
  }

  async begin(kafka, topic) {
    const admin = kafka.admin()
    await admin.connect()
    for (const { partition, low, high } of await admin.fetchTopicOffsets(topic)) {
      const [first_offset, end] = [Number(low), Number(high)]
      const sha = createHash('sha256')
      this.partitions.set(partition, { count: 0, first_offset, next_offset: first_offset, gaps: 0, end, sha })
    }
    await admin.disconnect()
  }

  read({ batch }) {
    const one = this.partitions.get(batch.partition)
    for (const message of batch.messages) {
      const offset = Number(message.offset)
      if (offset >= one.end) continue
      const content = canonical(message)
      if (offset !== one.next_offset) one.gaps++
      one.next_offset = offset + 1
      one.count++
      one.sha.update(content)
      if (this.records === null) continue
      const number = message.headers.n ?? '-1'
      fs.writeSync(this.records, `${batch.partition} ${offset} ${number} ${content.toString('hex')}\n`)
    }
    this.readAt = Date.now()
  }

  get succeeded() {
    return [...this.partitions.values()].every(one => one.next_offset >= one.end)
  }
}

function canonical({ timestamp, key, value, headers }) {
  const time = Buffer.alloc(8)
  time.writeBigInt64BE(BigInt(timestamp))
  const pairs = Object.entries(headers).flatMap(([name, values]) => [values].flat().map(one => [name, one]))
  const fields = pairs.flatMap(([name, one]) => [field(Buffer.from(name)), field(one)])
  return Buffer.concat([time, field(key), field(value), length(pairs.length), ...fields])
}

function field(content) {
  return content === null ? length(-1) : Buffer.concat([length(content.length), content])
}

function length(number) {
  const bytes = Buffer.alloc(4)
  bytes.writeInt32BE(number)
  return bytes
}

module.exports = { Consume }
