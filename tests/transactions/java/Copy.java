import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Copies a topic in transactions, as the documentation of KafkaProducer says it: BOOTSTRAP INPUTS OUTPUTS GROUP PARTITIONS RECORDS.
 *
 * <p>Says "records" and "offsets" once these have been handed over, and waits for a line each time: "abort" ends the
 * transaction so. At the end, "done" and how many transactions failed.
 */
public final class Copy {
    private static final BufferedReader ORDERS = new BufferedReader(new InputStreamReader(System.in));

    private final String bootstrap;
    private final String outputs;
    private final String group;
    private final List<TopicPartition> inputs;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private KafkaProducer<byte[], byte[]> producer;

    private Copy(String bootstrap, String inputs, String outputs, String group, int partitions) {
        this.bootstrap = bootstrap;
        this.outputs = outputs;
        this.group = group;
        this.inputs = IntStream.range(0, partitions).mapToObj(one -> new TopicPartition(inputs, one)).toList();
        consumer = newConsumer();
        consumer.assign(this.inputs);
        producer = newProducer();
        rewind();
    }

    public static void main(String[] arguments) throws IOException {
        Copy copy = new Copy(
                arguments[0], arguments[1], arguments[2], arguments[3], Integer.parseInt(arguments[4]));
        System.out.println("done " + copy.run(Integer.parseInt(arguments[5])));
        System.exit(0);
    }

    private int run(int records) throws IOException {
        int failures = 0;
        while (committed().values().stream().mapToLong(OffsetAndMetadata::offset).sum() < records) {
            ConsumerRecords<byte[], byte[]> found = consumer.poll(Duration.ofSeconds(2));
            if (found.isEmpty()) {
                continue;
            }
            try {
                transact(found);
            } catch (ProducerFencedException | OutOfOrderSequenceException | AuthorizationException fatal) {
                failures++;
                producer.close(Duration.ZERO);
                producer = newProducer();
                rewind();
            } catch (KafkaException error) {
                failures++;
                abort();
            }
        }
        return failures;
    }

    private void transact(ConsumerRecords<byte[], byte[]> found) throws IOException {
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> one : found) {
            producer.send(new ProducerRecord<>(outputs, one.partition(), null, one.value()));
            offsets.put(new TopicPartition(one.topic(), one.partition()), new OffsetAndMetadata(one.offset() + 1));
        }
        ask("records");
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        if (ask("offsets").equals("abort")) {
            producer.flush();
            abort();
        } else {
            commit();
        }
    }

    private void commit() {
        while (true) {
            try {
                producer.commitTransaction();
                return;
            } catch (TimeoutException inDoubt) {
                System.err.println("commit again: " + inDoubt);
            }
        }
    }

    private void abort() {
        producer.abortTransaction();
        rewind();
    }

    private void rewind() {
        Map<TopicPartition, OffsetAndMetadata> found = committed();
        for (TopicPartition one : inputs) {
            consumer.seek(one, found.containsKey(one) ? found.get(one).offset() : 0);
        }
    }

    private Map<TopicPartition, OffsetAndMetadata> committed() {
        Map<TopicPartition, OffsetAndMetadata> found = new HashMap<>(consumer.committed(Set.copyOf(inputs)));
        found.values().removeIf(one -> one == null);
        return found;
    }

    private static String ask(String what) throws IOException {
        System.out.println(what);
        return ORDERS.readLine();
    }

    private KafkaConsumer<byte[], byte[]> newConsumer() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", "15");
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private KafkaProducer<byte[], byte[]> newProducer() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", "copier");
        settings.put("transaction.timeout.ms", "60000");
        KafkaProducer<byte[], byte[]> made =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        made.initTransactions();
        return made;
    }
}
