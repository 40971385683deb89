package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// consumeSummary is the JSON of `consume`: assigned partitions, no group, each read to the end
// that it had at the start.
type consumeSummary struct {
	Partitions map[string]*partitionDigest `json:"partitions"`

	records io.Writer
}

func consume(o options) (*consumeSummary, error) {
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
	secured, err := securityOptions(o.security)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(append(secured, kgo.SeedBrokers(o.bootstrap))...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	if err := summary.begin(client, o); err != nil {
		return nil, err
	}
	return summary, summary.readAll(client, o)
}

func (s *consumeSummary) begin(client *kgo.Client, o options) error {
	admin := kadm.NewClient(client)
	begins, err := admin.ListStartOffsets(context.Background(), o.topic)
	if err != nil {
		return err
	}
	ends, err := admin.ListEndOffsets(context.Background(), o.topic)
	if err != nil {
		return err
	}
	assigned := map[int32]kgo.Offset{}
	for partition := int32(0); partition < int32(o.partitions); partition++ {
		begin, hasBegin := begins.Lookup(o.topic, partition)
		end, hasEnd := ends.Lookup(o.topic, partition)
		if !hasBegin || !hasEnd || begin.Err != nil || end.Err != nil {
			return fmt.Errorf("no offsets of partition %d: %v, %v", partition, begin.Err, end.Err)
		}
		s.Partitions[strconv.Itoa(int(partition))] = newPartitionDigest(begin.Offset, end.Offset)
		assigned[partition] = kgo.NewOffset().At(begin.Offset)
	}
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{o.topic: assigned})
	return nil
}

func (s *consumeSummary) readAll(client *kgo.Client, o options) error {
	for !s.succeeded() {
		wait, cancel := context.WithTimeout(context.Background(), o.idleTimeout)
		fetches := client.PollFetches(wait)
		cancel()
		if err := fetches.Err0(); err != nil {
			return err
		}
		for _, failed := range fetches.Errors() {
			return fmt.Errorf("partition %d: %w", failed.Partition, failed.Err)
		}
		fetches.EachRecord(s.add)
	}
	for _, partition := range s.Partitions {
		partition.finish()
	}
	return nil
}

func (s *consumeSummary) add(record *kgo.Record) {
	partition := s.Partitions[strconv.Itoa(int(record.Partition))]
	if record.Offset >= partition.endOffset {
		return
	}
	content := canonical(record)
	partition.add(record.Offset, content)
	if s.records == nil {
		return
	}
	number := "-1"
	for _, header := range record.Headers {
		if header.Key == "n" {
			number = string(header.Value)
		}
	}
	fmt.Fprintf(s.records, "%d %d %s %s\n",
		record.Partition, record.Offset, number, hex.EncodeToString(content))
}

func (s *consumeSummary) succeeded() bool {
	for _, partition := range s.Partitions {
		if partition.NextOffset < partition.endOffset {
			return false
		}
	}
	return true
}
