// The client program of franz-go, and by a first argument the reader of sarama or kafka-go; its command line is
// defined in tests/compatibility/README.md.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"time"
)

type header struct {
	Client  string  `json:"client"`
	Version string  `json:"version"`
	Seconds float64 `json:"seconds"`
}

type reader struct {
	module string
	read   func(*consumeSummary, options) error
}

var readers = map[string]reader{
	"franz-go": {"github.com/twmb/franz-go", readByFranzGo},
	"sarama":   {"github.com/IBM/sarama", readBySarama},
	"kafka-go": {"github.com/segmentio/kafka-go", readByKafkaGo},
}

func main() {
	client, arguments := "franz-go", os.Args[1:]
	if len(arguments) > 0 && readers[arguments[0]].read != nil {
		client, arguments = arguments[0], arguments[1:]
	}
	if len(arguments) < 1 {
		fmt.Fprintln(os.Stderr, "produce, consume, attempt or subscribe?")
		os.Exit(2)
	}
	began := time.Now()
	succeeded, err := run(client, arguments[0], parse(arguments[1:]), began)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil || !succeeded {
		os.Exit(1)
	}
}

func run(client, command string, o options, began time.Time) (bool, error) {
	if client != "franz-go" && command != "consume" {
		return false, fmt.Errorf("%s does consume alone", client)
	}
	switch command {
	case "produce":
		summary, err := produce(o)
		if summary == nil {
			return false, err
		}
		show(struct {
			header
			*produceSummary
		}{newHeader(client, began), summary})
		return summary.succeeded(), err
	case "consume":
		summary, err := consume(o, readers[client].read)
		if summary == nil {
			return false, err
		}
		show(struct {
			header
			*consumeSummary
		}{newHeader(client, began), summary})
		return summary.succeeded(), err
	case "attempt":
		summary, err := attempt(o.cases)
		if summary == nil {
			return false, err
		}
		show(struct {
			header
			*attemptSummary
		}{newHeader(client, began), summary})
		return true, err
	case "subscribe":
		summary, err := subscribe(o)
		if summary == nil {
			return false, err
		}
		show(struct {
			header
			*subscribeSummary
		}{newHeader(client, began), summary})
		return true, err
	}
	return false, fmt.Errorf("produce, consume, attempt or subscribe, not %s", command)
}

func newHeader(client string, began time.Time) header {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == readers[client].module {
				version = module.Version
			}
		}
	}
	return header{client, version, time.Since(began).Seconds()}
}

func show(summary any) {
	line, err := json.Marshal(summary)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}
