package echoless;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** kafka-clients behind the line protocol of testkit/clients/README.md. */
public final class Driver {
    private KafkaProducer<byte[], byte[]> producer;
    /** Counts the producers: what an earlier one still reports is not said. */
    private int opening;

    public static void main(String[] arguments) throws IOException {
        say("\"event\": \"ready\", \"client\": \"java\", \"version\": \"" + version() + "\"");
        Driver driver = new Driver();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            driver.obey(line.trim().split(" +"));
        }
        Runtime.getRuntime().halt(0);
    }

    private void obey(String[] words) {
        switch (words[0]) {
            case "open" -> open(words);
            case "send" -> send(words[1], Integer.parseInt(words[2]), Long.parseLong(words[3]), Long.parseLong(words[4]));
            case "close" -> close();
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private void open(String[] words) {
        Map<String, String> options = new HashMap<>();
        for (int index = 1; index < words.length; index++) {
            String[] parts = words[index].split("=", 2);
            options.put(parts[0], parts[1]);
        }
        Properties settings = new Properties();
        settings.put("bootstrap.servers", options.get("bootstrap"));
        settings.put("enable.idempotence", "true");
        settings.put("acks", "all");
        settings.put("linger.ms", options.get("linger_ms"));
        settings.put("request.timeout.ms", options.get("request_timeout_ms"));
        settings.put("delivery.timeout.ms", options.get("delivery_timeout_ms"));
        settings.put("retry.backoff.ms", "50");
        settings.put("reconnect.backoff.max.ms", "200");
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        if (options.containsKey("username")) {
            settings.put("security.protocol", "SASL_PLAINTEXT");
            settings.put("sasl.mechanism", "PLAIN");
            settings.put("sasl.jaas.config", "org.apache.kafka.common.security.plain.PlainLoginModule required username=\""
                    + options.get("username") + "\" password=\"" + options.get("password") + "\";");
        }
        producer = new KafkaProducer<>(settings);
        synchronized (this) {
            opening++;
        }
        say("\"event\": \"opened\"");
    }

    private void send(String topic, int partition, long first, long count) {
        int current = opening;
        for (long number = first; number < first + count; number++) {
            long sent = number;
            byte[] value = Long.toString(number).getBytes(StandardCharsets.US_ASCII);
            try {
                producer.send(new ProducerRecord<>(topic, partition, null, value), (metadata, error) -> done(
                        current, topic, partition, sent, metadata == null ? -1 : metadata.offset(), error));
            } catch (KafkaException refused) {
                // The producer takes nothing more.
                say("\"event\": \"fatal\", \"error\": \"" + quoted(refused.toString()) + "\"");
                done(current, topic, partition, sent, -1, refused);
            }
        }
    }

    private synchronized void done(
            int opened, String topic, int partition, long number, long offset, Exception error) {
        if (opened != opening) {
            return;
        }
        String record = "\"topic\": \"" + topic + "\", \"partition\": " + partition + ", \"number\": " + number;
        if (error == null) {
            say("\"event\": \"acked\", " + record + ", \"offset\": " + offset);
        } else {
            String name = error.getClass().getSimpleName();
            say("\"event\": \"failed\", " + record + ", \"error\": \"" + name + "\"");
        }
    }

    private void close() {
        synchronized (this) {
            opening++;
        }
        producer.close(Duration.ZERO);
        say("\"event\": \"closed\"");
    }

    private static String version() throws IOException {
        Properties properties = new Properties();
        try (InputStream file = KafkaProducer.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            properties.load(file);
        }
        return properties.getProperty("version");
    }

    private static String quoted(String text) {
        return text.replaceAll("[\"\\\\\n]", "'");
    }

    private static void say(String fields) {
        synchronized (System.out) {
            System.out.println("{" + fields + "}");
            System.out.flush();
        }
    }
}
