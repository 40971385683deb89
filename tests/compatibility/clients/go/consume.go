package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strconv"
)

// consumeSummary is the JSON of `consume`: assigned partitions, no group, each read to the end
// that it had at the start.
type consumeSummary struct {
	Partitions map[string]*partitionDigest `json:"partitions"`

	records io.Writer
}

// consume has `read` call begin for each partition, and add for each record, until all are read.
func consume(o options, read func(*consumeSummary, options) error) (*consumeSummary, error) {
	summary := &consumeSummary{Partitions: map[string]*partitionDigest{}}
	if o.records != "" {
		file, err := os.Create(o.records)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		buffered := bufio.NewWriter(file)
		defer buffered.Flush()
		summary.records = buffered
	}
	err := read(summary, o)
	for _, partition := range summary.Partitions {
		partition.finish()
	}
	return summary, err
}

func (s *consumeSummary) begin(partition int32, firstOffset, endOffset int64) {
	s.Partitions[strconv.Itoa(int(partition))] = newPartitionDigest(firstOffset, endOffset)
}

func (s *consumeSummary) add(record recordRead) {
	partition := s.Partitions[strconv.Itoa(int(record.partition))]
	if record.offset >= partition.endOffset {
		return
	}
	content := canonical(record)
	partition.add(record.offset, content)
	if s.records == nil {
		return
	}
	number := "-1"
	for _, header := range record.headers {
		if header.name == "n" {
			number = string(header.value)
		}
	}
	fmt.Fprintf(s.records, "%d %d %s %s\n",
		record.partition, record.offset, number, hex.EncodeToString(content))
}

func (s *consumeSummary) succeeded() bool {
	for _, partition := range s.Partitions {
		if partition.NextOffset < partition.endOffset {
			return false
		}
	}
	return true
}
