'use strict'
// kafkajs as a transactional producer: a line of JSON asks, a line of JSON answers (scenarios/transactional_client.py).

const readline = require('node:readline')
const { Kafka, logLevel } = require('kafkajs')

const servers = process.argv[2].split(',')
const say = fields => process.stdout.write(`${JSON.stringify(fields)}\n`)

let producer = null
let transaction = null

const actions = {
  async open({ name, client_id: clientId, timeout_ms: transactionTimeout = 60000 }) {
    producer?.disconnect().catch(() => {})
    const retry = { initialRetryTime: 50, maxRetryTime: 500, retries: 40 }
    const kafka = new Kafka({ retry, clientId, brokers: servers, requestTimeout: 1000, logLevel: logLevel.NOTHING })
    producer = kafka.producer({ transactionalId: name, idempotent: true, maxInFlightRequests: 1, metadataMaxAge: 500, transactionTimeout, retry })
    await producer.connect()
  },
  async begin() {
    transaction = await producer.transaction()
  },
  async send({ topic, numbers, partition = 0 }) {
    await transaction.send({ topic, acks: -1, messages: numbers.map(one => ({ partition, value: String(one) })) })
  },
  async commit() {
    await transaction.commit()
  },
  async abort() {
    await transaction.abort()
  },
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { do: what, ...fields } = JSON.parse(line)
    try {
      await actions[what](fields)
      say({ error: null, kind: '' })
    } catch (error) {
      const name = error.type || (error.cause && error.cause.type) || error.name
      const isFatal = /FENCED|INVALID_PRODUCER/.test(name)
      say({ error: name, kind: isFatal ? 'fatal' : 'abortable' })
    }
  }
  process.exit(0)
}

main()
