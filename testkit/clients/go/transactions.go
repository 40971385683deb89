// franz-go as a transactional producer: a line of JSON asks, a line of JSON answers (scenarios/transactional_client.py).
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const within = 40 * time.Second

// asked is one line of input; fields that an action does not have are empty.
type asked struct {
	Do        string `json:"do"`
	Name      string `json:"name"`
	ClientID  string `json:"client_id"`
	TimeoutMs int    `json:"timeout_ms"`
	Topic     string `json:"topic"`
	Numbers   []int  `json:"numbers"`
	Partition int32  `json:"partition"`
}

type outcome struct {
	Error *string `json:"error"`
	Kind  string  `json:"kind"`
}

type actor struct {
	servers []string
	client  *kgo.Client
}

func playTransactions(servers string) {
	a := &actor{servers: strings.Split(servers, ",")}
	lines, answers := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var line asked
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			panic(err)
		}
		if err := answers.Encode(outcomeOf(a.do(line))); err != nil {
			panic(err)
		}
	}
}

func (a *actor) do(line asked) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	switch line.Do {
	case "open":
		return a.open(ctx, line)
	case "begin":
		return a.client.BeginTransaction()
	case "send":
		var records []*kgo.Record
		for _, number := range line.Numbers {
			value := []byte(strconv.Itoa(number))
			records = append(records, &kgo.Record{Topic: line.Topic, Partition: line.Partition, Value: value})
		}
		return a.client.ProduceSync(ctx, records...).FirstErr()
	case "commit":
		return a.client.EndTransaction(ctx, kgo.TryCommit)
	case "abort":
		if err := a.client.AbortBufferedRecords(ctx); err != nil {
			return err
		}
		return a.client.EndTransaction(ctx, kgo.TryAbort)
	}
	return fmt.Errorf("unknown action %s", line.Do)
}

func (a *actor) open(ctx context.Context, line asked) error {
	if a.client != nil {
		go a.client.Close() // may wait for requests that nobody answers
	}
	timeout := line.TimeoutMs
	if timeout == 0 {
		timeout = 60000
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(a.servers...),
		kgo.ClientID(line.ClientID),
		kgo.TransactionalID(line.Name),
		kgo.TransactionTimeout(time.Duration(timeout)*time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProduceRequestTimeout(500*time.Millisecond),
		kgo.RequestTimeoutOverhead(500*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		kgo.MetadataMinAge(50*time.Millisecond),
	)
	if err != nil {
		return err
	}
	a.client = client
	_, _, err = client.ProducerID(ctx)
	return err
}

func outcomeOf(err error) outcome {
	if err == nil {
		return outcome{}
	}
	name, kind := err.Error(), "abortable"
	var known *kerr.Error
	if errors.As(err, &known) {
		name = known.Message
	}
	if errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch) ||
		errors.Is(err, kerr.InvalidProducerIDMapping) {
		kind = "fatal"
	}
	return outcome{Error: &name, Kind: kind}
}
