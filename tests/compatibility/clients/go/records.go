package main

import (
	"encoding/binary"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// draws is xorshift32 from a mixed start, so that record i needs no record before it.
type draws uint32

func newDraws(seed, number uint32) *draws {
	x := seed + 0x9e3779b9*(number+1)
	x ^= x >> 16
	x *= 0x7feb352d
	x ^= x >> 15
	x *= 0x846ca68b
	x ^= x >> 16
	if x == 0 {
		x = 1
	}
	return (*draws)(&x)
}

func (d *draws) draw() uint32 {
	x := uint32(*d)
	x ^= x << 13
	x ^= x >> 17
	x ^= x << 5
	*d = draws(x)
	return x
}

func (d *draws) below(bound uint32) uint32 { return d.draw() % bound }

func (d *draws) fill(length uint32) []byte {
	content := make([]byte, (length+15)/16*16)
	for block := 0; block < len(content); block += 16 {
		word := d.draw()
		for i := 0; i < 16; i += 4 {
			binary.LittleEndian.PutUint32(content[block+i:], word)
		}
	}
	return content[:length]
}

// series is the records of one seed, as tests/compatibility/README.md defines them.
type series struct {
	topic         string
	seed          uint32
	partitions    int
	baseTimestamp int64
}

func (s series) record(number int) *kgo.Record {
	d := newDraws(s.seed, uint32(number))
	record := &kgo.Record{Topic: s.topic, Partition: int32(number % s.partitions)}
	record.Timestamp = time.UnixMilli(s.baseTimestamp + 7*int64(number) + int64(d.below(1000)))
	record.Key = key(d)
	record.Value = value(d, record.Key == nil)
	record.Headers = []kgo.RecordHeader{{Key: "n", Value: []byte(strconv.Itoa(number))}}
	for left := d.below(4); left > 0; left-- {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: "hé", Value: headerValue(d)})
	}
	return record
}

func key(d *draws) []byte {
	switch d.below(8) {
	case 0:
		return nil
	case 1:
		return []byte{}
	}
	return []byte("key-" + strconv.Itoa(int(d.below(5000))))
}

func value(d *draws, keyIsNull bool) []byte {
	switch d.below(16) {
	case 0:
		if keyIsNull {
			return []byte{}
		}
		return nil
	case 1:
		return []byte{}
	case 2:
		return d.fill(d.below(4000))
	}
	return d.fill(d.below(160))
}

func headerValue(d *draws) []byte {
	switch d.below(4) {
	case 0:
		return nil
	case 1:
		return []byte{}
	}
	return d.fill(d.below(24))
}
