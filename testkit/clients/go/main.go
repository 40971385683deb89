// franz-go behind the line protocol of testkit/clients/README.md.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

// event is one line of output; what is empty is left out.
type event struct {
	Event     string  `json:"event"`
	Client    string  `json:"client,omitempty"`
	Version   string  `json:"version,omitempty"`
	Topic     string  `json:"topic,omitempty"`
	Partition *int32  `json:"partition,omitempty"`
	Offset    *int64  `json:"offset,omitempty"`
	Number    *uint64 `json:"number,omitempty"`
	Error     string  `json:"error,omitempty"`
}

// driver holds the producer; callbacks come from the client's goroutines.
type driver struct {
	client *kgo.Client
	// opening counts the producers: what an earlier one still reports is not said.
	opening atomic.Int64
	output  sync.Mutex
}

func main() {
	if len(os.Args) > 1 {
		playTransactions(os.Args[1])
		return
	}
	d := &driver{}
	d.say(event{Event: "ready", Client: "franz-go", Version: version()})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if err := d.obey(strings.Fields(lines.Text())); err != nil {
			d.say(event{Event: "fatal", Error: err.Error()})
		}
	}
}

func (d *driver) obey(words []string) error {
	switch words[0] {
	case "open":
		return d.open(words[1:])
	case "send":
		return d.send(words[1:])
	case "close":
		d.opening.Add(1)
		client := d.client
		go client.Close() // may wait for requests that nobody answers
		d.say(event{Event: "closed"})
		return nil
	}
	return fmt.Errorf("unknown command %s", words[0])
}

func (d *driver) open(words []string) error {
	options := map[string]string{}
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		options[name] = value
	}
	// Half of the timeout is the broker's, half the client's own: franz-go adds them.
	half := milliseconds(options["request_timeout_ms"]) / 2
	settings := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(options["bootstrap"], ",")...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerLinger(milliseconds(options["linger_ms"])),
		kgo.ProduceRequestTimeout(half),
		kgo.RequestTimeoutOverhead(half),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		kgo.MetadataMinAge(50*time.Millisecond),
		kgo.RecordDeliveryTimeout(milliseconds(options["delivery_timeout_ms"])),
	}
	if user, exists := options["username"]; exists {
		login := plain.Auth{User: user, Pass: options["password"]}
		settings = append(settings, kgo.SASL(login.AsMechanism()))
	}
	client, err := kgo.NewClient(settings...)
	if err != nil {
		return err
	}
	d.client = client
	d.opening.Add(1)
	d.say(event{Event: "opened"})
	return nil
}

func (d *driver) send(words []string) error {
	partition, err := strconv.ParseInt(words[1], 10, 32)
	if err != nil {
		return err
	}
	first, err := strconv.ParseUint(words[2], 10, 64)
	if err != nil {
		return err
	}
	count, err := strconv.ParseUint(words[3], 10, 64)
	if err != nil {
		return err
	}
	opening := d.opening.Load()
	for number := first; number < first+count; number++ {
		record := &kgo.Record{
			Topic:     words[0],
			Partition: int32(partition),
			Value:     strconv.AppendUint(nil, number, 10),
		}
		d.client.Produce(context.Background(), record, func(record *kgo.Record, err error) {
			if d.opening.Load() == opening {
				d.done(record, number, err)
			}
		})
	}
	return nil
}

func (d *driver) done(record *kgo.Record, number uint64, err error) {
	one := event{Topic: record.Topic, Partition: &record.Partition, Number: &number}
	if err == nil {
		one.Event, one.Offset = "acked", &record.Offset
	} else {
		one.Event, one.Error = "failed", errorName(err)
	}
	d.say(one)
}

func errorName(err error) string {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Message
	}
	return err.Error()
}

func (d *driver) say(one event) {
	line, err := json.Marshal(one)
	if err != nil {
		panic(err)
	}
	d.output.Lock()
	defer d.output.Unlock()
	fmt.Println(string(line))
}

func milliseconds(text string) time.Duration {
	count, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return time.Duration(count) * time.Millisecond
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/twmb/franz-go" {
				return strings.TrimPrefix(module.Version, "v")
			}
		}
	}
	return "unknown"
}
