'use strict'
// The records of one seed, as tests/compatibility/README.md defines them. kafkajs cannot encode a
// null header value, so an empty one stands in its place.

const EMPTY = Buffer.alloc(0)

// xorshift32 from a mixed start, so that record i needs no record before it.
class Draws {
  constructor(seed, number) {
    let x = (seed + Math.imul(0x9e3779b9, number + 1)) >>> 0
    x ^= x >>> 16
    x = Math.imul(x, 0x7feb352d)
    x ^= x >>> 15
    x = Math.imul(x, 0x846ca68b)
    x ^= x >>> 16
    this.state = x >>> 0 || 1
  }

  draw() {
    let x = this.state
    x ^= x << 13
    x ^= x >>> 17
    x ^= x << 5
    this.state = x >>> 0
    return this.state
  }

  below(bound) {
    return this.draw() % bound
  }

  fill(length) {
    const content = Buffer.alloc(Math.ceil(length / 16) * 16)
    for (let block = 0; block < content.length; block += 16) {
      const word = this.draw()
      for (let i = 0; i < 16; i += 4) content.writeUInt32LE(word, block + i)
    }
    return content.subarray(0, length)
  }
}

function record({ seed, partitions, baseTimestamp }, number) {
  const draws = new Draws(seed, number)
  const timestamp = String(baseTimestamp + 7 * number + draws.below(1000))
  const key = keyOf(draws)
  const value = valueOf(draws, key === null ? EMPTY : null)
  const headers = { n: Buffer.from(String(number)) }
  const more = []
  for (let left = draws.below(4); left > 0; left--) more.push(headerValue(draws))
  if (more.length > 0) headers['hé'] = more
  return { partition: number % partitions, timestamp, key, value, headers, number }
}

function keyOf(draws) {
  const which = draws.below(8)
  if (which < 2) return [null, EMPTY][which]
  return Buffer.from(`key-${draws.below(5000)}`)
}

function valueOf(draws, without) {
  const which = draws.below(16)
  if (which < 2) return [without, EMPTY][which]
  return draws.fill(draws.below(which === 2 ? 4000 : 160))
}

function headerValue(draws) {
  if (draws.below(4) < 2) return EMPTY
  return draws.fill(draws.below(24))
}

module.exports = { record }
