package main

import (
	"flag"
	"strconv"
	"time"
)

// options is the command line of tests/compatibility/README.md.
type options struct {
	bootstrap, topic, codec, ackLog, records             string
	transactionalID, end, security, cases                     string
	group, log, assignor, protocol                       string
	partitions, count, first                             int
	seed                                                 uint
	baseTimestamp                                        int64
	rate                                                 float64
	linger, requestTimeout, deliveryTimeout, idleTimeout time.Duration
	sessionTimeout                                       time.Duration
}

func parse(arguments []string) options {
	var o options
	set := flag.NewFlagSet("client", flag.ExitOnError)
	set.StringVar(&o.bootstrap, "bootstrap", "", "HOST:PORT")
	set.StringVar(&o.topic, "topic", "", "")
	set.IntVar(&o.partitions, "partitions", 1, "")
	set.StringVar(&o.codec, "codec", "none", "none, gzip, snappy, lz4 or zstd")
	set.IntVar(&o.count, "count", 0, "number of records")
	set.UintVar(&o.seed, "seed", 0, "")
	set.IntVar(&o.first, "first", 0, "number of the first record")
	set.Int64Var(&o.baseTimestamp, "base-timestamp", 1_700_000_000_000, "ms")
	set.Float64Var(&o.rate, "rate", 0, "records a second; 0: no limit")
	set.StringVar(&o.ackLog, "ack-log", "", "file")
	set.StringVar(&o.transactionalID, "transactional-id", "", "")
	set.StringVar(&o.end, "end", "commit", "of the transaction: commit or abort")
	set.StringVar(&o.security, "security", "", "file of settings, by librdkafka's names")
	set.StringVar(&o.cases, "cases", "", "file")
	set.StringVar(&o.records, "records", "", "file")
	set.StringVar(&o.group, "group", "", "")
	set.StringVar(&o.log, "log", "", "file")
	set.StringVar(&o.assignor, "assignor", "range", "range, roundrobin or cooperative-sticky")
	set.StringVar(&o.protocol, "protocol", "classic", "classic or consumer")
	milliseconds(set, &o.sessionTimeout, "session-timeout-ms", 6_000)
	milliseconds(set, &o.linger, "linger-ms", 5)
	milliseconds(set, &o.requestTimeout, "request-timeout-ms", 10_000)
	milliseconds(set, &o.deliveryTimeout, "delivery-timeout-ms", 0)
	milliseconds(set, &o.idleTimeout, "idle-timeout-ms", 20_000)
	_ = set.Parse(arguments) // ExitOnError: it does not return an error
	return o
}

func milliseconds(set *flag.FlagSet, target *time.Duration, name string, otherwise int64) {
	*target = time.Duration(otherwise) * time.Millisecond
	set.Func(name, "milliseconds", func(text string) error {
		count, err := strconv.ParseInt(text, 10, 64)
		*target = time.Duration(count) * time.Millisecond
		return err
	})
}
