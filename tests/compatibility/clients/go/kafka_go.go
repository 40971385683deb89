package main

import (
	"context"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
)

func readByKafkaGo(summary *consumeSummary, o options) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	messages, failures := make(chan kafka.Message), make(chan error)
	for partition := 0; partition < o.partitions; partition++ {
		begin, end, err := offsets(ctx, o, partition)
		if err != nil {
			return err
		}
		summary.begin(int32(partition), begin, end)
		reader := kafka.NewReader(kafka.ReaderConfig{
			Brokers: []string{o.bootstrap}, Topic: o.topic, Partition: partition,
			MinBytes: 1, MaxBytes: 10_000_000, MaxWait: 200 * time.Millisecond,
		})
		if err := reader.SetOffset(begin); err != nil {
			return err
		}
		go func() {
			for {
				message, err := reader.FetchMessage(ctx)
				if err != nil {
					failures <- fmt.Errorf("partition %d: %w", partition, err)
					return
				}
				messages <- message
			}
		}()
	}
	for !summary.succeeded() {
		select {
		case message := <-messages:
			summary.add(kafkaGoRecord(message))
		case err := <-failures:
			return err
		case <-time.After(o.idleTimeout):
			return fmt.Errorf("nothing came for %s", o.idleTimeout)
		}
	}
	return nil
}

func offsets(ctx context.Context, o options, partition int) (begin, end int64, err error) {
	leader, err := kafka.DialLeader(ctx, "tcp", o.bootstrap, o.topic, partition)
	if err != nil {
		return 0, 0, err
	}
	defer leader.Close()
	return leader.ReadOffsets()
}

func kafkaGoRecord(message kafka.Message) recordRead {
	read := recordRead{
		partition: int32(message.Partition), offset: message.Offset, timestamp: message.Time.UnixMilli(),
		key: message.Key, value: message.Value,
	}
	for _, header := range message.Headers {
		read.headers = append(read.headers, headerRead{header.Key, header.Value})
	}
	return read
}
