'use strict'
// `attempt`: stores one record per case, each by other security settings, and says what kafkajs said.

const fs = require('node:fs')
const { Kafka, logLevel } = require('kafkajs')
const { securitySettings } = require('./security')

async function attemptAll(path) {
  const outcomes = {}
  for (const line of fs.readFileSync(path, 'utf8').split('\n').filter(Boolean)) {
    const [name, bootstrap, topic, security] = line.split(' ')
    outcomes[name] = await attempt(bootstrap, topic, security)
  }
  return { summary: { outcomes }, succeeded: true }
}

async function attempt(bootstrap, topic, security) {
  const retry = { initialRetryTime: 10, retries: 1 } // an idempotent producer must have one
  const kafka = new Kafka({
    ...securitySettings(security),
    brokers: [bootstrap],
    retry,
    logLevel: logLevel.NOTHING,
  })
  const producer = kafka.producer({ idempotent: true, allowAutoTopicCreation: false, retry })
  try {
    await producer.connect()
    await producer.send({ topic, acks: -1, messages: [{ value: 'x', partition: 0 }] })
    return 'stored'
  } catch (error) {
    const own = error.name === 'KafkaJSNumberOfRetriesExceeded' && error.cause ? error.cause : error
    return `${own.type || own.name}: ${own.message}`
  } finally {
    await producer.disconnect()
  }
}

module.exports = { attemptAll }
