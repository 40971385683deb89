'use strict'
// The kafkajs client program; its command line is defined in tests/compatibility/README.md.

const fs = require('node:fs')
const { parseArgs } = require('node:util')
const { Kafka, logLevel } = require('kafkajs')
const codecs = require('./codecs')
const { attemptAll } = require('./attempt')
const { Consume } = require('./consume')
const { record } = require('./records')
const { securitySettings } = require('./security')
const { Subscribe } = require('./subscribe')

const RECORDS_A_SEND = 500

function parse() {
  const text = otherwise => ({ type: 'string', default: otherwise })
  const { positionals, values } = parseArgs({
    allowPositionals: true,
    options: {
      bootstrap: text(),
      topic: text(),
      partitions: text(),
      codec: text('none'),
      count: text(),
      seed: text(),
      first: text('0'),
      'base-timestamp': text('1700000000000'),
      rate: text('0'),
      'ack-log': text(),
      'transactional-id': text(),
      end: text('commit'), // of the transaction, or abort
      security: text(),
      records: text(), // these two of `consume`
      'idle-timeout-ms': text('20000'),
      cases: text(), // of `attempt`
      group: text(), // these three of `subscribe`
      log: text(),
      'session-timeout-ms': text('6000'),
      assignor: text(), // kafkajs has round-robin only,
      protocol: text('classic'), // and this one
      'linger-ms': text('5'), // kafkajs sends what it is given at once
      'request-timeout-ms': text('10000'),
      'delivery-timeout-ms': text('0'), // nor does it give up
    },
  })
  const [command] = positionals
  if (!['produce', 'consume', 'attempt', 'subscribe'].includes(command)) {
    throw new Error('`produce`, `consume`, `attempt` or `subscribe`')
  }
  return { command, ...values }
}

class Produce {
  constructor(options, compression) {
    this.options = options
    this.compression = compression
    this.series = {
      seed: Number(options.seed),
      partitions: Number(options.partitions),
      baseTimestamp: Number(options['base-timestamp']),
    }
    this.summary = { sent: 0, acked: 0, errors: {}, fatal: null }
    this.ackLog = options['ack-log'] ? fs.openSync(options['ack-log'], 'a') : null
    this.stopped = false
    process.on('SIGTERM', () => {
      this.stopped = true
    })
  }

  async run() {
    const retry = { initialRetryTime: 50, maxRetryTime: 1000, retries: Number.MAX_SAFE_INTEGER }
    const kafka = new Kafka({
      ...securitySettings(this.options.security),
      retry,
      brokers: [this.options.bootstrap],
      requestTimeout: Number(this.options['request-timeout-ms']),
      logLevel: logLevel.WARN,
    })
    const transactionalId = this.options['transactional-id']
    const settings = { idempotent: true, allowAutoTopicCreation: true, retry, transactionalId }
    const producer = kafka.producer(settings)
    await producer.connect()
    let sender = producer
    try {
      if (transactionalId) sender = await producer.transaction() // the first one asks for the producer id
    } catch (error) {
      this.summary.fatal = `${error.type}: ${error.message}`
      return
    }
    const first = Number(this.options.first)
    const count = Number(this.options.count)
    const began = process.hrtime.bigint()
    for (let index = 0; index < count && !this.stopped; ) {
      const ready = await this.countDue(began, index, count)
      const numbers = Array.from({ length: ready }, (_, i) => first + index + i)
      await this.send(sender, numbers.map(number => record(this.series, number)))
      index += ready
    }
    if (transactionalId) await (this.options.end === 'abort' ? sender.abort() : sender.commit())
    await producer.disconnect()
  }

  // How many records may be sent now; waits until it is at least one, unless stopped.
  async countDue(began, index, count) {
    const rate = Number(this.options.rate)
    const left = Math.min(count - index, RECORDS_A_SEND)
    if (rate <= 0) return left
    for (;;) {
      const seconds = Number(process.hrtime.bigint() - began) / 1e9
      const due = Math.min(left, Math.floor(seconds * rate) + 1 - index)
      if (due > 0) return due
      if (this.stopped) return 0
      await new Promise(resolve => setTimeout(resolve, 5))
    }
  }

  async send(producer, messages) {
    const { topic } = this.options
    this.summary.sent += messages.length
    try {
      const answers = await producer.send({ topic, acks: -1, messages, compression: this.compression })
      this.acknowledge(messages, answers)
    } catch (error) {
      process.stderr.write(`${error.stack}\n`)
      const name = error.type || error.name
      this.summary.errors[name] = (this.summary.errors[name] || 0) + messages.length
    }
  }

  acknowledge(messages, answers) {
    const next = new Map(answers.map(a => [a.partition, BigInt(a.baseOffset)]))
    const lines = messages.map(({ partition, number }) => {
      const offset = next.get(partition)
      next.set(partition, offset + (offset < 0n ? 0n : 1n))
      return `${partition} ${offset} ${number}\n`
    })
    this.summary.acked += messages.length
    if (this.ackLog !== null) fs.writeSync(this.ackLog, lines.join(''))
  }

  get succeeded() {
    const { sent, acked, errors, fatal } = this.summary
    return fatal === null && Object.keys(errors).length === 0 && acked === sent
  }
}

async function begin(options) {
  if (options.command === 'attempt') return attemptAll(options.cases)
  if (options.command === 'subscribe') return new Subscribe(options)
  if (options.command === 'consume') {
    await codecs.useAll()
    return new Consume(options)
  }
  return new Produce(options, await codecs.use(options.codec))
}

async function main() {
  const began = process.hrtime.bigint()
  const options = parse()
  const run = await begin(options)
  if (options.command !== 'attempt') await run.run()
  const seconds = Number(process.hrtime.bigint() - began) / 1e9
  const { version } = require('kafkajs/package.json')
  process.stdout.write(
    `${JSON.stringify({ client: 'kafkajs', version, seconds, ...run.summary })}\n`,
    () => process.exit(run.succeeded ? 0 : 1)
  )
}

main()
