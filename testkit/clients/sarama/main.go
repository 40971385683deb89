// sarama behind the line protocol of testkit/clients/README.md.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
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

const pause = 100 * time.Millisecond

var (
	producer sarama.AsyncProducer
	output   sync.Mutex
)

func main() {
	say(event{Event: "ready", Client: "sarama", Version: version()})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if err := obey(strings.Fields(lines.Text())); err != nil {
			say(event{Event: "fatal", Error: err.Error()})
		}
	}
}

func obey(words []string) error {
	switch words[0] {
	case "open":
		return open(words[1:])
	case "send":
		return send(words[1:])
	case "close":
		producer.AsyncClose()
		say(event{Event: "closed"})
		return nil
	}
	return fmt.Errorf("unknown command %s", words[0])
}

func open(words []string) error {
	options := map[string]string{}
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		options[name] = value
	}
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Net.MaxOpenRequests = 1 // it asks for no more of an idempotent producer
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	config.Producer.Flush.Frequency = milliseconds(options["linger_ms"])
	config.Producer.Timeout = milliseconds(options["request_timeout_ms"])
	config.Producer.Retry.Max = int(milliseconds(options["delivery_timeout_ms"]) / pause)
	config.Producer.Retry.Backoff = pause
	made, err := sarama.NewAsyncProducer(strings.Split(options["bootstrap"], ","), config)
	if err != nil {
		return err
	}
	producer = made
	go func() {
		for message := range made.Successes() {
			say(event{Event: "acked", Topic: message.Topic, Partition: &message.Partition,
				Offset: &message.Offset, Number: number(message)})
		}
	}()
	go func() {
		for failed := range made.Errors() {
			say(event{Event: "failed", Topic: failed.Msg.Topic, Partition: &failed.Msg.Partition,
				Number: number(failed.Msg), Error: errorName(failed.Err)})
		}
	}()
	say(event{Event: "opened"})
	return nil
}

func send(words []string) error {
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
	for one := first; one < first+count; one++ {
		producer.Input() <- &sarama.ProducerMessage{
			Topic:     words[0],
			Partition: int32(partition),
			Value:     sarama.StringEncoder(strconv.FormatUint(one, 10)),
			Metadata:  one,
		}
	}
	return nil
}

func number(message *sarama.ProducerMessage) *uint64 {
	one := message.Metadata.(uint64)
	return &one
}

func errorName(err error) string {
	var known sarama.KError
	if errors.As(err, &known) {
		return fmt.Sprintf("%d %s", int16(known), known.Error())
	}
	return err.Error()
}

func say(one event) {
	line, err := json.Marshal(one)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
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
			if module.Path == "github.com/IBM/sarama" {
				return strings.TrimPrefix(module.Version, "v")
			}
		}
	}
	return "unknown"
}
