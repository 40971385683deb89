'use strict'
// The file that `--security` names, as kafkajs's settings; its lines are name=value, by librdkafka's names.

const fs = require('node:fs')

function securitySettings(path) {
  if (!path) return {}
  const lines = fs.readFileSync(path, 'utf8').split('\n').filter(Boolean)
  const given = Object.fromEntries(lines.map(line => line.match(/^([^=]*)=(.*)$/).slice(1)))
  const settings = {}
  if (given['security.protocol'].endsWith('SSL')) {
    settings.ssl = { ca: fs.readFileSync(given['ssl.ca.location']) }
    const certificate = given['ssl.certificate.location']
    if (certificate) settings.ssl.cert = settings.ssl.key = fs.readFileSync(certificate)
  }
  if (given['security.protocol'].startsWith('SASL')) {
    settings.reauthenticationThreshold = 1000 // its ten seconds are longer than a session of the tests
    settings.sasl = {
      mechanism: given['sasl.mechanism'].toLowerCase(),
      username: given['sasl.username'],
      password: given['sasl.password'],
      oauthBearerProvider: async () => ({ value: given['sasl.oauthbearer.token'] }),
    }
  }
  return settings
}

module.exports = { securitySettings }
