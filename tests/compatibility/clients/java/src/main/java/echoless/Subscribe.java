package echoless;

import java.io.FileWriter;
import java.io.IOException;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.UnknownMemberIdException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** One run of `subscribe`: a member of a group that reads until SIGTERM, and its log of everything that it saw. */
final class Subscribe {
    private static final Map<String, String> ASSIGNORS = Map.of(
            "range", "org.apache.kafka.clients.consumer.RangeAssignor",
            "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
            "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    private final Options options;
    private final PrintWriter log;
    private final CountDownLatch ended = new CountDownLatch(1);
    private volatile boolean isOver;
    private long records;

    Subscribe(Options options) throws IOException {
        this.options = options;
        log = new PrintWriter(new FileWriter(options.text("log"), true), false);
        Runtime.getRuntime().addShutdownHook(new Thread(this::stop));
    }

    void run() {
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings())) {
            consumer.subscribe(List.of(options.text("topic")), new Rebalances(consumer));
            while (!isOver) {
                readOnce(consumer);
            }
        } finally {
            ended.countDown();
        }
    }

    String summary() {
        return "\"records\": " + records;
    }

    private void stop() {
        isOver = true;
        try {
            ended.await();
            Runtime.getRuntime().halt(0); // or the status would be 143
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private Properties settings() {
        String session = options.text("session-timeout-ms", "6000");
        Properties settings = new Properties();
        settings.put("bootstrap.servers", options.text("bootstrap"));
        settings.put("group.id", options.text("group"));
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("max.poll.records", "100");
        settings.put("metadata.max.age.ms", "5000");
        settings.put("default.api.timeout.ms", "30000");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("group.protocol", options.text("protocol", "classic"));
        if (settings.get("group.protocol").equals("classic")) {
            settings.put("partition.assignment.strategy", ASSIGNORS.get(options.text("assignor", "range")));
            settings.put("session.timeout.ms", session);
            settings.put("heartbeat.interval.ms", Integer.toString(Integer.parseInt(session) / 10));
        }
        return settings;
    }

    private void readOnce(KafkaConsumer<byte[], byte[]> consumer) {
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> record : polled(consumer)) {
            records++;
            note("record", record.partition(), record.offset(),
                    new String(record.value(), StandardCharsets.UTF_8));
            ends.put(new TopicPartition(record.topic(), record.partition()),
                    new OffsetAndMetadata(record.offset() + 1));
        }
        if (!ends.isEmpty()) {
            String offsets = written(ends);
            note("committing", offsets);
            try {
                consumer.commitSync(ends, Duration.ofSeconds(10));
                note("committed", offsets);
            } catch (KafkaException refused) {
                note("failed", refused.toString().replace('\n', ' '));
            }
        }
    }

    /**
     * Polls once. A member that was removed while it stood still, before it had its committed offsets, is told so by
     * the answer to its OffsetFetch, which kafka-clients 4 throws here; its next heartbeat makes it join again.
     */
    private ConsumerRecords<byte[], byte[]> polled(KafkaConsumer<byte[], byte[]> consumer) {
        try {
            return consumer.poll(Duration.ofMillis(200));
        } catch (UnknownMemberIdException removed) {
            note("failed", removed.toString().replace('\n', ' '));
            return ConsumerRecords.empty();
        }
    }

    private static String written(Map<TopicPartition, OffsetAndMetadata> ends) {
        Map<Integer, Long> sorted = new TreeMap<>();
        ends.forEach((place, end) -> sorted.put(place.partition(), end.offset()));
        return sorted.entrySet().stream()
                .map(entry -> entry.getKey() + " " + entry.getValue())
                .collect(Collectors.joining(" "));
    }

    private void note(Object... parts) {
        StringBuilder line = new StringBuilder();
        line.append(ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now()));
        for (Object part : parts) {
            line.append(' ').append(part);
        }
        log.println(line.toString().stripTrailing());
        log.flush();
    }

    private static String numbers(Collection<TopicPartition> partitions) {
        return partitions.stream().map(TopicPartition::partition).sorted()
                .map(String::valueOf).collect(Collectors.joining(" "));
    }

    private final class Rebalances implements ConsumerRebalanceListener {
        private final KafkaConsumer<byte[], byte[]> consumer;

        Rebalances(KafkaConsumer<byte[], byte[]> consumer) {
            this.consumer = consumer;
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            note("assigned", consumer.groupMetadata().generationId(), numbers(partitions));
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            note("revoked", numbers(partitions));
        }
    }
}
