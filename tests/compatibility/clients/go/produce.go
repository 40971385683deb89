package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// produceSummary is the JSON of `produce`; callbacks come from the client's goroutines.
type produceSummary struct {
	Sent   int            `json:"sent"`
	Acked  int            `json:"acked"`
	Errors map[string]int `json:"errors"`
	Fatal  *string        `json:"fatal"`

	mutex  sync.Mutex
	ackLog *os.File
}

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func produce(o options) (*produceSummary, error) {
	summary := &produceSummary{Errors: map[string]int{}}
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	if o.ackLog != "" {
		file, err := os.OpenFile(o.ackLog, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		summary.ackLog = file
	}
	secured, err := securityOptions(o.security)
	if err != nil {
		return nil, err
	}
	settings := append(secured,
		kgo.SeedBrokers(o.bootstrap),
		kgo.AllowAutoTopicCreation(),
		// Kafka does not know a topic yet in the answer that creates it; do not wait 5 s to ask again.
		kgo.MetadataMinAge(100*time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchCompression(codecs[o.codec]),
		kgo.ProducerLinger(o.linger),
		kgo.ProduceRequestTimeout(o.requestTimeout),
	)
	if o.deliveryTimeout > 0 {
		// Counted from the record's own timestamp, so not by default.
		settings = append(settings, kgo.RecordDeliveryTimeout(o.deliveryTimeout))
	}
	if o.transactionalID != "" {
		settings = append(settings, kgo.TransactionalID(o.transactionalID))
	}
	client, err := kgo.NewClient(settings...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	if o.transactionalID != "" {
		// The client asks for its id here; the first record would do it otherwise.
		if _, _, err := client.ProducerID(stop); err != nil {
			fatal := err.Error()
			summary.Fatal = &fatal
			return summary, nil
		}
		if err := client.BeginTransaction(); err != nil {
			return nil, err
		}
	}
	sendAll(stop, client, o, summary)
	if err := client.Flush(context.Background()); err != nil || o.transactionalID == "" {
		return summary, err
	}
	return summary, client.EndTransaction(context.Background(), kgo.TransactionEndTry(o.end != "abort"))
}

func sendAll(stop context.Context, client *kgo.Client, o options, summary *produceSummary) {
	records := series{o.topic, uint32(o.seed), o.partitions, o.baseTimestamp}
	began := time.Now()
	for index := 0; index < o.count && stop.Err() == nil; index++ {
		if o.rate > 0 {
			due := began.Add(time.Duration(float64(index) / o.rate * float64(time.Second)))
			select {
			case <-stop.Done():
				return
			case <-time.After(time.Until(due)):
			}
		}
		number := o.first + index
		summary.Sent++
		client.Produce(context.Background(), records.record(number),
			func(record *kgo.Record, err error) { summary.done(number, record, err) })
	}
}

func (s *produceSummary) done(number int, record *kgo.Record, err error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if err != nil {
		s.Errors[errorName(err)]++
		return
	}
	s.Acked++
	if s.ackLog != nil {
		fmt.Fprintf(s.ackLog, "%d %d %d\n", record.Partition, record.Offset, number)
	}
}

func errorName(err error) string {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Message
	}
	return err.Error()
}

func (s *produceSummary) succeeded() bool {
	return s.Fatal == nil && len(s.Errors) == 0 && s.Acked == s.Sent
}
