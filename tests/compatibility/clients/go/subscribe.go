package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sort"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// subscribeSummary is the JSON of `subscribe`: a member of a group that reads until SIGTERM. Its log
// has everything that it saw.
type subscribeSummary struct {
	Records int `json:"records"`

	log *os.File
}

var balancers = map[string]kgo.GroupBalancer{
	"range":              kgo.RangeBalancer(),
	"roundrobin":         kgo.RoundRobinBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

func subscribe(o options) (*subscribeSummary, error) {
	file, err := os.OpenFile(o.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	summary := &subscribeSummary{log: file}
	ctx := context.Background()
	if o.protocol == "consumer" {
		ctx = context.WithValue(ctx, "opt_in_kafka_next_gen_balancer_beta", true)
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(o.bootstrap, ",")...),
		kgo.WithContext(ctx),
		kgo.ConsumerGroup(o.group),
		kgo.ConsumeTopics(o.topic),
		kgo.Balancers(balancers[o.assignor]),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(o.sessionTimeout),
		kgo.HeartbeatInterval(o.sessionTimeout/10),
		kgo.RebalanceTimeout(30*time.Second),
		kgo.MetadataMaxAge(5*time.Second),
		kgo.OnPartitionsAssigned(summary.assigned),
		kgo.OnPartitionsRevoked(summary.revoked),
		kgo.OnPartitionsLost(summary.revoked),
	)
	if err != nil {
		return nil, err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	for {
		select {
		case <-stop:
			client.CloseAllowingRebalance()
			return summary, nil
		default:
			summary.readOnce(client)
		}
	}
}

func (s *subscribeSummary) readOnce(client *kgo.Client) {
	defer client.AllowRebalance()
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	fetches := client.PollRecords(ctx, 100)
	cancel()
	ends := map[int32]int64{}
	var records []*kgo.Record
	fetches.EachRecord(func(record *kgo.Record) {
		s.Records++
		s.note(fmt.Sprintf("record %d %d %s", record.Partition, record.Offset, record.Value))
		ends[record.Partition] = record.Offset + 1
		records = append(records, record)
	})
	if len(records) == 0 {
		return
	}
	offsets := written(ends)
	s.note("committing " + offsets)
	ctx, cancel = context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := client.CommitRecords(ctx, records...); err != nil {
		s.note("failed " + strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	s.note("committed " + offsets)
}

func written(ends map[int32]int64) string {
	var parts []string
	for partition, end := range ends {
		parts = append(parts, fmt.Sprintf("%d %d", partition, end))
	}
	sort.Strings(parts)
	return strings.Join(parts, " ")
}

func (s *subscribeSummary) assigned(_ context.Context, client *kgo.Client, all map[string][]int32) {
	_, generation := client.GroupMetadata()
	s.note(strings.TrimSpace(fmt.Sprintf("assigned %d %s", generation, numbers(all))))
}

func (s *subscribeSummary) revoked(_ context.Context, _ *kgo.Client, all map[string][]int32) {
	s.note(strings.TrimSpace("revoked " + numbers(all)))
}

func numbers(all map[string][]int32) string {
	var parts []string
	for _, partitions := range all {
		for _, partition := range partitions {
			parts = append(parts, fmt.Sprint(partition))
		}
	}
	return strings.Join(parts, " ")
}

func (s *subscribeSummary) note(line string) {
	fmt.Fprintf(s.log, "%d %s\n", time.Now().UnixMicro(), line)
}
