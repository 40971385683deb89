'use strict'
// kafkajs behind the line protocol of testkit/clients/README.md.

const readline = require('node:readline')
const { Kafka, logLevel } = require('kafkajs')
const { version } = require('kafkajs/package.json')

const say = fields => process.stdout.write(`${JSON.stringify(fields)}\n`)

let producer = null
let opening = 0 // counts the producers: what an earlier one still reports is not said

async function open(words) {
  const options = Object.fromEntries(words.map(word => word.split(/=(.*)/s).slice(0, 2)))
  const deadline = Number(options.delivery_timeout_ms)
  const retry = { initialRetryTime: 50, maxRetryTime: 500, retries: Math.ceil(deadline / 500) }
  const kafka = new Kafka({
    retry,
    brokers: options.bootstrap.split(','),
    requestTimeout: Number(options.request_timeout_ms),
    sasl: options.username && { mechanism: 'plain', username: options.username, password: options.password },
    logLevel: logLevel.NOTHING,
  })
  producer = kafka.producer({ idempotent: true, retry })
  await producer.connect()
  opening += 1
  say({ event: 'opened' })
}

async function send(topic, partition, first, count) {
  const current = opening
  const numbers = Array.from({ length: count }, (_, index) => first + index)
  const messages = numbers.map(number => ({ partition, value: String(number) }))
  const report = each => {
    if (current === opening) numbers.forEach((number, i) => say({ topic, partition, number, ...each(i) }))
  }
  try {
    const [answer] = await producer.send({ topic, acks: -1, messages })
    const base = Number(answer.baseOffset)
    report(index => ({ event: 'acked', offset: base < 0 ? -1 : base + index }))
  } catch (error) {
    const name = error.type || (error.cause && error.cause.type) || error.name
    report(() => ({ event: 'failed', error: name }))
  }
}

async function close() {
  opening += 1
  producer.disconnect().catch(() => {}) // may wait for requests that nobody answers
  say({ event: 'closed' })
}

async function obey(line) {
  const [command, ...words] = line.trim().split(/ +/)
  if (command === 'open') await open(words)
  else if (command === 'send') send(words[0], ...words.slice(1).map(Number))
  else if (command === 'close') await close()
  else throw new Error(`unknown command ${command}`)
}

async function main() {
  say({ event: 'ready', client: 'kafkajs', version })
  for await (const line of readline.createInterface({ input: process.stdin })) {
    await obey(line).catch(error => say({ event: 'fatal', error: String(error) }))
  }
  process.exit(0)
}

main()
