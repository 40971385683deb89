package echoless;

import java.io.BufferedWriter;
import java.io.FileWriter;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** One run of `consume`: assigned partitions, no group, each read to the end it had at the start. */
final class Consume {
    private final Options options;
    private final BufferedWriter records;
    private final Map<Integer, PartitionDigest> digests = new TreeMap<>();
    private Map<TopicPartition, Long> ends = Map.of();

    Consume(Options options) throws IOException {
        this.options = options;
        String path = options.text("records", null);
        records = path == null ? null : new BufferedWriter(new FileWriter(path));
    }

    void run() throws IOException {
        long idleNanos = options.number("idle-timeout-ms", 20_000) * 1_000_000;
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings())) {
            begin(consumer);
            long readAt = System.nanoTime();
            while (!succeeded() && System.nanoTime() - readAt < idleNanos) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    add(record);
                    readAt = System.nanoTime();
                }
            }
        } finally { // what was read before an error is in the file
            if (records != null) {
                records.close();
            }
        }
    }

    private Properties settings() throws IOException {
        Properties settings = Security.settings(options.text("security", null));
        settings.put("bootstrap.servers", options.text("bootstrap"));
        settings.put("enable.auto.commit", "false");
        settings.put("check.crcs", "true");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        return settings;
    }

    private void begin(KafkaConsumer<byte[], byte[]> consumer) {
        List<TopicPartition> partitions = IntStream.range(0, options.number("partitions"))
                .mapToObj(partition -> new TopicPartition(options.text("topic"), partition))
                .collect(Collectors.toList());
        consumer.assign(partitions);
        ends = consumer.endOffsets(partitions);
        consumer.beginningOffsets(partitions).forEach((partition, offset) -> {
            digests.put(partition.partition(), new PartitionDigest(offset));
            consumer.seek(partition, offset);
        });
    }

    private void add(ConsumerRecord<byte[], byte[]> record) throws IOException {
        TopicPartition partition = new TopicPartition(record.topic(), record.partition());
        if (record.offset() >= ends.get(partition)) {
            return;
        }
        byte[] canonical = PartitionDigest.canonical(record);
        digests.get(record.partition()).add(record.offset(), canonical);
        if (records != null) {
            Header number = record.headers().lastHeader("n");
            String text = number == null ? "-1" : new String(number.value(), StandardCharsets.UTF_8);
            records.write(String.format("%d %d %s %s%n", record.partition(), record.offset(), text,
                    HexFormat.of().formatHex(canonical)));
        }
    }

    String summary() {
        return digests.entrySet().stream()
                .map(entry -> "\"" + entry.getKey() + "\": " + entry.getValue().report())
                .collect(Collectors.joining(", ", "\"partitions\": {", "}"));
    }

    boolean succeeded() {
        return ends.entrySet().stream().allMatch(
                end -> digests.get(end.getKey().partition()).nextOffset() >= end.getValue());
    }
}
