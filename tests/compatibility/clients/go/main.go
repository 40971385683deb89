// The franz-go client program; its command line is defined in tests/compatibility/README.md.
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

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "produce, consume, attempt or subscribe?")
		os.Exit(2)
	}
	began := time.Now()
	succeeded, err := run(os.Args[1], parse(os.Args[2:]), began)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil || !succeeded {
		os.Exit(1)
	}
}

func run(command string, o options, began time.Time) (bool, error) {
	switch command {
	case "produce":
		summary, err := produce(o)
		if summary == nil {
			return false, err
		}
		show(struct {
			header
			*produceSummary
		}{newHeader(began), summary})
		return summary.succeeded(), err
	case "consume":
		summary, err := consume(o)
		if summary == nil {
			return false, err
		}
		show(struct {
			header
			*consumeSummary
		}{newHeader(began), summary})
		return summary.succeeded(), err
	case "attempt":
		summary, err := attempt(o.cases)
		if summary == nil {
			return false, err
		}
		show(struct {
			header
			*attemptSummary
		}{newHeader(began), summary})
		return true, err
	case "subscribe":
		summary, err := subscribe(o)
		if summary == nil {
			return false, err
		}
		show(struct {
			header
			*subscribeSummary
		}{newHeader(began), summary})
		return true, err
	}
	return false, fmt.Errorf("produce, consume, attempt or subscribe, not %s", command)
}

func newHeader(began time.Time) header {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/twmb/franz-go" {
				version = module.Version
			}
		}
	}
	return header{"franz-go", version, time.Since(began).Seconds()}
}

func show(summary any) {
	line, err := json.Marshal(summary)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}
