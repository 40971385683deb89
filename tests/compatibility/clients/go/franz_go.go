package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func readByFranzGo(summary *consumeSummary, o options) error {
	secured, err := securityOptions(o.security)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(append(secured, kgo.SeedBrokers(o.bootstrap))...)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := assign(summary, client, o); err != nil {
		return err
	}
	for !summary.succeeded() {
		wait, cancel := context.WithTimeout(context.Background(), o.idleTimeout)
		fetches := client.PollFetches(wait)
		cancel()
		if err := fetches.Err0(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) { summary.add(franzGoRecord(record)) })
		for _, failed := range fetches.Errors() { // what was read before it is counted
			return fmt.Errorf("partition %d: %w", failed.Partition, failed.Err)
		}
	}
	return nil
}

func assign(summary *consumeSummary, client *kgo.Client, o options) error {
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
		summary.begin(partition, begin.Offset, end.Offset)
		assigned[partition] = kgo.NewOffset().At(begin.Offset)
	}
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{o.topic: assigned})
	return nil
}

func franzGoRecord(record *kgo.Record) recordRead {
	read := recordRead{
		partition: record.Partition, offset: record.Offset, timestamp: record.Timestamp.UnixMilli(),
		key: record.Key, value: record.Value,
	}
	for _, header := range record.Headers {
		read.headers = append(read.headers, headerRead{header.Key, header.Value})
	}
	return read
}
