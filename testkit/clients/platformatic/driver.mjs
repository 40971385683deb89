// @platformatic/kafka behind the line protocol of testkit/clients/README.md.

import { readFileSync } from 'node:fs'
import readline from 'node:readline'
import { ProduceAcks, Producer, stringSerializers } from '@platformatic/kafka'

const manifest = new URL('node_modules/@platformatic/kafka/package.json', import.meta.url)
const { version } = JSON.parse(readFileSync(manifest, 'utf8'))

const say = fields => process.stdout.write(`${JSON.stringify(fields)}\n`)

let producer = null
let opening = 0 // counts the producers: what an earlier one still reports is not said

function open(words) {
  const options = Object.fromEntries(words.map(word => word.split(/=(.*)/s).slice(0, 2)))
  const retryDelay = 100
  producer = new Producer({
    clientId: 'driver',
    bootstrapBrokers: options.bootstrap.split(','),
    idempotent: true,
    acks: ProduceAcks.ALL,
    timeout: Number(options.request_timeout_ms),
    retryDelay,
    retries: Math.ceil(Number(options.delivery_timeout_ms) / retryDelay),
    serializers: stringSerializers,
  })
  opening += 1
  say({ event: 'opened' })
}

async function send(topic, partition, first, count) {
  const current = opening
  const numbers = Array.from({ length: count }, (_, index) => first + index)
  const messages = numbers.map(number => ({ topic, partition, key: '', value: String(number) }))
  const report = each => {
    if (current === opening) numbers.forEach((number, i) => say({ topic, partition, number, ...each(i) }))
  }
  try {
    const answer = await producer.send({ messages })
    const base = Number(answer.offsets[0].offset)
    report(index => ({ event: 'acked', offset: base < 0 ? -1 : base + index }))
  } catch (error) {
    report(() => ({ event: 'failed', error: nameOf(error) }))
  }
}

function nameOf(error) {
  const inner = error.errors?.[0] ?? error.cause
  return error.apiId ?? (inner ? nameOf(inner) : error.message)
}

function close() {
  opening += 1
  producer.close().catch(() => {}) // may wait for requests that nobody answers
  say({ event: 'closed' })
}

async function obey(line) {
  const [command, ...words] = line.trim().split(/ +/)
  if (command === 'open') open(words)
  else if (command === 'send') send(words[0], ...words.slice(1).map(Number))
  else if (command === 'close') close()
  else throw new Error(`unknown command ${command}`)
}

say({ event: 'ready', client: 'platformatic', version })
for await (const line of readline.createInterface({ input: process.stdin })) {
  await obey(line).catch(error => say({ event: 'fatal', error: String(error) }))
}
process.exit(0)
