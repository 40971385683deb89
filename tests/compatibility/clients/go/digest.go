package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"

	"github.com/twmb/franz-go/pkg/kgo"
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

func canonical(record *kgo.Record) []byte {
	out := binary.BigEndian.AppendUint64(nil, uint64(record.Timestamp.UnixMilli()))
	out = appendField(out, record.Key)
	out = appendField(out, record.Value)
	out = binary.BigEndian.AppendUint32(out, uint32(len(record.Headers)))
	for _, header := range record.Headers {
		out = appendField(out, []byte(header.Key))
		out = appendField(out, header.Value)
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
