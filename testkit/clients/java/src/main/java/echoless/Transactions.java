package echoless;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** kafka-clients as a transactional producer: a line of JSON asks, a line of JSON answers (scenarios/transactional_client.py). */
public final class Transactions {
    private static final long WITHIN_MS = 40_000;

    private final String servers;
    private KafkaProducer<byte[], byte[]> producer;

    private Transactions(String servers) {
        this.servers = servers;
    }

    public static void main(String[] arguments) throws IOException {
        Transactions actor = new Transactions(arguments[0]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(actor.answer(line));
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private String answer(String line) {
        try {
            act(line);
            return "{\"error\": null, \"kind\": \"\"}";
        } catch (KafkaException error) {
            KafkaException cause = error.getCause() instanceof KafkaException inner ? inner : error;
            boolean isFatal = cause instanceof ProducerFencedException || cause instanceof InvalidProducerEpochException;
            String kind = isFatal ? "fatal" : "abortable";
            return "{\"error\": \"" + cause.getClass().getSimpleName() + "\", \"kind\": \"" + kind + "\"}";
        }
    }

    private void act(String line) {
        switch (text(line, "do")) {
            case "open" -> open(line);
            case "begin" -> producer.beginTransaction();
            case "send" -> send(line);
            case "commit" -> untilDone(producer::commitTransaction);
            case "abort" -> untilDone(producer::abortTransaction);
            default -> throw new IllegalArgumentException(line);
        }
    }

    private void open(String line) {
        if (producer != null) {
            producer.close(Duration.ZERO);
        }
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("transactional.id", text(line, "name"));
        settings.put("client.id", text(line, "client_id"));
        settings.put("transaction.timeout.ms", text(line, "timeout_ms"));
        settings.put("linger.ms", "5");
        settings.put("request.timeout.ms", "1000");
        settings.put("delivery.timeout.ms", "30000");
        settings.put("max.block.ms", "10000");
        settings.put("retry.backoff.ms", "50");
        settings.put("metadata.max.age.ms", "500"); // or the only broker that it knows may be the one that is stopped
        settings.put("reconnect.backoff.max.ms", "200");
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        producer = new KafkaProducer<>(settings);
        untilDone(producer::initTransactions);
    }

    private void send(String line) {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        int partition = Integer.parseInt(text(line, "partition"));
        for (String number : text(line, "numbers").split(", *")) {
            byte[] value = number.getBytes(StandardCharsets.US_ASCII);
            sent.add(producer.send(new ProducerRecord<>(text(line, "topic"), partition, null, value)));
        }
        for (Future<RecordMetadata> one : sent) {
            try {
                one.get();
            } catch (ExecutionException error) {
                throw new KafkaException(error.getCause());
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    /** Calls again after a timeout, as Kafka asks of programs. */
    private static void untilDone(Runnable call) {
        long end = System.currentTimeMillis() + WITHIN_MS;
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException error) {
                if (System.currentTimeMillis() > end) {
                    throw error;
                }
            }
        }
    }

    /** The value of a field: a text, a number, or what is between brackets. */
    private static String text(String line, String name) {
        Matcher found = Pattern.compile("\"" + name + "\": *(?:\"([^\"]*)\"|\\[([^\\]]*)\\]|(-?[0-9]+))").matcher(line);
        if (!found.find()) {
            throw new IllegalArgumentException(name + " is missing in " + line);
        }
        return found.group(1) != null ? found.group(1) : found.group(2) != null ? found.group(2) : found.group(3);
    }
}
