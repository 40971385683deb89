package main

import (
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

func readBySarama(summary *consumeSummary, o options) error {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Consumer.Return.Errors = true
	config.Consumer.MaxWaitTime = 200 * time.Millisecond
	client, err := sarama.NewClient([]string{o.bootstrap}, config)
	if err != nil {
		return err
	}
	defer client.Close()
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return err
	}
	records, failures := make(chan *sarama.ConsumerMessage), make(chan *sarama.ConsumerError)
	for partition := int32(0); partition < int32(o.partitions); partition++ {
		begin, err := client.GetOffset(o.topic, partition, sarama.OffsetOldest)
		if err != nil {
			return err
		}
		end, err := client.GetOffset(o.topic, partition, sarama.OffsetNewest)
		if err != nil {
			return err
		}
		summary.begin(partition, begin, end)
		one, err := consumer.ConsumePartition(o.topic, partition, begin)
		if err != nil {
			return err
		}
		go func() {
			for message := range one.Messages() {
				records <- message
			}
		}()
		go func() {
			for failure := range one.Errors() {
				failures <- failure
			}
		}()
	}
	for !summary.succeeded() {
		select {
		case message := <-records:
			summary.add(saramaRecord(message))
		case failure := <-failures:
			return failure
		case <-time.After(o.idleTimeout):
			return fmt.Errorf("nothing came for %s", o.idleTimeout)
		}
	}
	return nil
}

func saramaRecord(message *sarama.ConsumerMessage) recordRead {
	read := recordRead{
		partition: message.Partition, offset: message.Offset, timestamp: message.Timestamp.UnixMilli(),
		key: message.Key, value: message.Value,
	}
	for _, header := range message.Headers {
		read.headers = append(read.headers, headerRead{string(header.Key), header.Value})
	}
	return read
}
