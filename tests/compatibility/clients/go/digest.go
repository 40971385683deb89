package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
)

// partitionDigest is what a reader reports of one partition, grown in the order of offsets.
type partitionDigest struct {
	Count       int64  `json:"count"`
	FirstOffset int64  `json:"first_offset"`
	NextOffset  int64  `json:"next_offset"`
	Gaps        int64  `json:"gaps"`
	Digest      string `json:"digest"`

	endOffset int64
	sha       hash.Hash
}

func newPartitionDigest(firstOffset, endOffset int64) *partitionDigest {
	return &partitionDigest{
		FirstOffset: firstOffset, NextOffset: firstOffset, endOffset: endOffset, sha: sha256.New(),
	}
}

func (p *partitionDigest) add(offset int64, canonical []byte) {
	if offset != p.NextOffset {
		p.Gaps++
	}
	p.NextOffset = offset + 1
	p.Count++
	p.sha.Write(canonical)
}

func (p *partitionDigest) finish() { p.Digest = hex.EncodeToString(p.sha.Sum(nil)) }

// recordRead is one record as a reader got it, whatever its client.
type recordRead struct {
	partition  int32
	offset     int64
	timestamp  int64 // ms
	key, value []byte
	headers    []headerRead
}

type headerRead struct {
	name  string
	value []byte
}

func canonical(record recordRead) []byte {
	out := binary.BigEndian.AppendUint64(nil, uint64(record.timestamp))
	out = appendField(out, record.key)
	out = appendField(out, record.value)
	out = binary.BigEndian.AppendUint32(out, uint32(len(record.headers)))
	for _, header := range record.headers {
		out = appendField(out, []byte(header.name))
		out = appendField(out, header.value)
	}
	return out
}

func appendField(out, content []byte) []byte {
	if content == nil {
		return binary.BigEndian.AppendUint32(out, 0xffffffff)
	}
	out = binary.BigEndian.AppendUint32(out, uint32(len(content)))
	return append(out, content...)
}
