package echoless;

import java.io.BufferedWriter;
import java.io.FileWriter;
import java.io.IOException;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import sun.misc.Signal;

/** One run of `produce`. Callbacks come from the client's own thread; `this` guards the counts. */
final class Produce {
    private final Options options;
    private final BufferedWriter ackLog;
    private final Map<String, Integer> errors = new TreeMap<>();
    private volatile boolean stopped;
    private volatile String fatal;
    private int sent;
    private int acked;

    Produce(Options options) throws IOException {
        this.options = options;
        String path = options.text("ack-log", null);
        ackLog = path == null ? null : new BufferedWriter(new FileWriter(path, true));
        Signal.handle(new Signal("TERM"), signal -> stopped = true);
    }

    void run() throws IOException {
        Series series = new Series(
                options.text("topic"), options.number("seed"), options.number("partitions"),
                options.number("base-timestamp", 1_700_000_000_000L));
        int first = (int) options.number("first", 0);
        int count = options.number("count");
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings())) {
            boolean isTransactional = options.text("transactional-id", null) != null;
            if (isTransactional) {
                beginTransaction(producer);
            }
            long began = System.nanoTime();
            for (int index = 0; index < count && !stopped && fatal == null; index++) {
                pace(began, index);
                send(producer, series, first + index);
            }
            producer.flush();
            if (isTransactional && fatal == null) {
                endTransaction(producer);
            }
        }
    }

    private void endTransaction(KafkaProducer<byte[], byte[]> producer) {
        if (options.text("end", "commit").equals("abort")) {
            producer.abortTransaction();
        } else {
            producer.commitTransaction();
        }
    }

    private void beginTransaction(KafkaProducer<byte[], byte[]> producer) {
        try {
            producer.initTransactions();
            producer.beginTransaction();
        } catch (KafkaException refused) {
            fatal = refused.toString();
        }
    }

    private Properties settings() throws IOException {
        Properties settings = Security.settings(options.text("security", null));
        long requestTimeoutMs = options.number("request-timeout-ms", 10_000);
        settings.put("bootstrap.servers", options.text("bootstrap"));
        settings.put("enable.idempotence", "true");
        String transactionalId = options.text("transactional-id", null);
        if (transactionalId != null) {
            settings.put("transactional.id", transactionalId);
        }
        settings.put("acks", "all");
        settings.put("compression.type", options.text("codec", "none"));
        settings.put("linger.ms", options.text("linger-ms", "5"));
        settings.put("request.timeout.ms", Long.toString(requestTimeoutMs));
        settings.put("delivery.timeout.ms", options.text("delivery-timeout-ms", "60000"));
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        return settings;
    }

    private void pace(long began, int index) {
        double rate = Double.parseDouble(options.text("rate", "0"));
        if (rate <= 0) {
            return;
        }
        long due = began + (long) (index / rate * 1e9);
        while (!stopped && System.nanoTime() < due) {
            LockSupport.parkNanos(Math.min(due - System.nanoTime(), 50_000_000L));
        }
    }

    private void send(KafkaProducer<byte[], byte[]> producer, Series series, int number) {
        sent++;
        try {
            producer.send(series.record(number), (metadata, error) -> done(number, metadata, error));
        } catch (KafkaException refused) {
            // The producer takes nothing more; records in flight still report to their callbacks.
            fatal = refused.toString();
        }
    }

    private synchronized void done(int number, RecordMetadata metadata, Exception error) {
        if (error != null) {
            errors.merge(error.getClass().getSimpleName(), 1, Integer::sum);
            return;
        }
        acked++;
        if (ackLog == null) {
            return;
        }
        try {
            ackLog.write(metadata.partition() + " " + metadata.offset() + " " + number + "\n");
            ackLog.flush();
        } catch (IOException lost) {
            fatal = lost.toString();
        }
    }

    synchronized String summary() {
        String counts = errors.entrySet().stream()
                .map(entry -> "\"" + entry.getKey() + "\": " + entry.getValue())
                .collect(Collectors.joining(", ", "{", "}"));
        String fatalText = fatal == null ? "null" : "\"" + fatal.replaceAll("[\"\\\\\n]", "'") + "\"";
        return String.format(
                "\"sent\": %d, \"acked\": %d, \"errors\": %s, \"fatal\": %s", sent, acked, counts, fatalText);
    }

    synchronized boolean succeeded() {
        return fatal == null && errors.isEmpty() && acked == sent;
    }
}
