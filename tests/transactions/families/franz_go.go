// franz-go: `transact BOOTSTRAP TOPIC PARTITIONS GROUP INPUTS` or `read BOOTSTRAP TOPIC PARTITIONS` (families.py says what these do).
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const within = 60 * time.Second
const id = "franz-go"

func main() {
	arguments := os.Args[2:]
	partitions, err := strconv.Atoi(arguments[2])
	if err != nil {
		panic(err)
	}
	seeds := kgo.SeedBrokers(strings.Split(arguments[0], ",")...)
	if os.Args[1] == "read" {
		read(seeds, arguments[1], partitions)
		return
	}
	transact(seeds, arguments[1], partitions, arguments[3], arguments[4])
}

func transact(seeds kgo.Opt, topic string, partitions int, group, inputs string) {
	var client *kgo.Client
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var first, count int
		var end string
		if _, err := fmt.Sscan(lines.Text(), &first, &count, &end); err != nil {
			panic(err)
		}
		if client == nil {
			made, err := kgo.NewClient(seeds, kgo.TransactionalID(id), kgo.TransactionTimeout(30*time.Second),
				kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			if err != nil {
				panic(err)
			}
			client = made
		}
		if err := once(client, partitions, group, inputs, first, count, end); err != nil {
			client.Close()
			client = nil
			fmt.Println("failed", strings.ReplaceAll(err.Error(), "\n", " "))
			continue
		}
		fmt.Println("ok")
	}
}

func once(client *kgo.Client, partitions int, group, inputs string, first, count int, end string) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	var records []*kgo.Record
	for number := first; number < first+count; number++ {
		records = append(records, &kgo.Record{Value: []byte(strconv.Itoa(number)), Partition: int32(number % partitions)})
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return err
	}
	if err := commitOffset(ctx, client, group, inputs, int64(first+count)); err != nil {
		return err
	}
	return client.EndTransaction(ctx, kgo.TransactionEndTry(end == "commit"))
}

// commitOffset makes the request itself: the library sends offsets only for a group that it consumes in.
func commitOffset(ctx context.Context, client *kgo.Client, group, inputs string, offset int64) error {
	producerID, epoch, err := client.ProducerID(ctx)
	if err != nil {
		return err
	}
	request := kmsg.NewPtrTxnOffsetCommitRequest()
	request.TransactionalID, request.Group = id, group
	request.ProducerID, request.ProducerEpoch = producerID, epoch
	topic, partition := kmsg.NewTxnOffsetCommitRequestTopic(), kmsg.NewTxnOffsetCommitRequestTopicPartition()
	partition.Offset = offset
	topic.Topic, topic.Partitions = inputs, append(topic.Partitions, partition)
	request.Topics = append(request.Topics, topic)
	for {
		response, err := request.RequestWith(ctx, client)
		if err != nil {
			return err
		}
		err = kerr.ErrorForCode(response.Topics[0].Partitions[0].ErrorCode)
		if err == nil || !kerr.IsRetriable(err) || ctx.Err() != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func read(seeds kgo.Opt, topic string, partitions int) {
	client, err := kgo.NewClient(seeds, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	found := [][]any{}
	for ended := 0; ended < partitions; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			panic(err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			value := string(record.Value)
			found = append(found, []any{record.Partition, record.Offset, value})
			if value == "end" {
				ended++
			}
		})
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		panic(err)
	}
}
