'use strict'
// kafkajs brings gzip; the other codecs are registered here.

const { CompressionCodecs, CompressionTypes } = require('kafkajs')

const TYPES = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

// A codec package is loaded only when it is used.
const COMPRESSORS = {
  snappy: async () => {
    const { compress } = require('snappyjs')
    return content => Buffer.from(compress(content))
  },
  lz4: async () => require('lz4-napi').compressFrame,
  zstd: async () => {
    const { init, compress } = require('@bokuweb/zstd-wasm')
    await init()
    return content => Buffer.from(compress(content, 3))
  },
}

async function use(codec) {
  if (!(codec in TYPES)) throw new Error(`no codec ${codec}`)
  const type = TYPES[codec]
  if (codec in COMPRESSORS) {
    const compress = await COMPRESSORS[codec]()
    CompressionCodecs[type] = () => ({ compress: async encoder => compress(encoder.buffer) })
  }
  return type
}

module.exports = { use }
