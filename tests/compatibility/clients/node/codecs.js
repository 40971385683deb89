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
const XERIAL = Buffer.from('\x82SNAPPY\0', 'latin1')
const XERIAL_HEADER_BYTES = 16

// A codec package is loaded only when it is used.
const CODECS = {
  snappy: async () => {
    const { compress, uncompress } = require('snappyjs')
    const decompress = content => Buffer.concat(snappyBlocks(content).map(block => uncompress(block)))
    return { compress: content => Buffer.from(compress(content)), decompress }
  },
  lz4: async () => {
    const { compressFrame, decompressFrame } = require('lz4-napi')
    return { compress: compressFrame, decompress: decompressFrame }
  },
  zstd: async () => {
    const { init, compress, decompress } = require('@bokuweb/zstd-wasm')
    await init()
    return {
      compress: content => Buffer.from(compress(content, 3)),
      decompress: content => Buffer.from(decompress(content)),
    }
  },
}

async function use(codec) {
  if (!(codec in TYPES)) throw new Error(`no codec ${codec}`)
  const type = TYPES[codec]
  if (codec in CODECS) {
    const { compress, decompress } = await CODECS[codec]()
    CompressionCodecs[type] = () => ({
      compress: async encoder => compress(encoder.buffer),
      decompress: async buffer => decompress(buffer),
    })
  }
  return type
}

async function useAll() {
  for (const codec of Object.keys(CODECS)) await use(codec)
}

// A bare block, or those of the stream that Java writes.
function snappyBlocks(content) {
  if (!content.subarray(0, XERIAL.length).equals(XERIAL)) return [content]
  const blocks = []
  for (let position = XERIAL_HEADER_BYTES; position < content.length; ) {
    const end = position + 4 + content.readInt32BE(position)
    blocks.push(content.subarray(position + 4, end))
    position = end
  }
  return blocks
}

module.exports = { use, useAll }
