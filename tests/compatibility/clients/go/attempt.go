package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const attemptTimeout = 15 * time.Second

// attemptSummary is the JSON of `attempt`: by case, "stored" or the client's own error.
type attemptSummary struct {
	Outcomes map[string]string `json:"outcomes"`
}

func attempt(path string) (*attemptSummary, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	summary := &attemptSummary{map[string]string{}}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var name, bootstrap, topic, security string
		if _, err := fmt.Sscan(lines.Text(), &name, &bootstrap, &topic, &security); err != nil {
			return nil, err
		}
		summary.Outcomes[name] = "stored"
		if err := store(bootstrap, topic, security); err != nil {
			summary.Outcomes[name] = err.Error()
		}
	}
	return summary, nil
}

// store connects first: what a producer buffers, it tries to send for as long as it may.
func store(bootstrap, topic, security string) error {
	secured, err := securityOptions(security)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(append(secured,
		kgo.SeedBrokers(bootstrap),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequestRetries(0),
	)...)
	if err != nil {
		return err
	}
	defer client.Close()
	wait, cancel := context.WithTimeout(context.Background(), attemptTimeout)
	defer cancel()
	if err := client.Ping(wait); err != nil {
		return err
	}
	return client.ProduceSync(wait, &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr()
}
