package echoless;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** `attempt`: stores one record per case, each by other security settings. */
final class Attempts {
    private static final String TIMEOUT_MS = "15000";

    private Attempts() {}

    /** By case, "stored" or the client's own error. */
    static String run(String path) throws IOException, InterruptedException {
        Map<String, String> outcomes = new TreeMap<>();
        for (String line : Files.readAllLines(Path.of(path))) {
            String[] parts = line.split(" ");
            outcomes.put(parts[0], attempt(parts[1], parts[2], Security.settings(parts[3])));
        }
        return outcomes.entrySet().stream()
                .map(one -> String.format("\"%s\": \"%s\"", one.getKey(), one.getValue()))
                .collect(Collectors.joining(", ", "\"outcomes\": {", "}"));
    }

    private static String attempt(String bootstrap, String topic, Properties settings)
            throws InterruptedException {
        settings.put("bootstrap.servers", bootstrap);
        settings.put("enable.idempotence", "true");
        settings.put("max.block.ms", TIMEOUT_MS);
        settings.put("delivery.timeout.ms", TIMEOUT_MS);
        settings.put("request.timeout.ms", "10000");
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            producer.send(new ProducerRecord<>(topic, 0, null, new byte[] {'x'})).get();
            return "stored";
        } catch (ExecutionException refused) {
            return text(refused.getCause());
        } catch (RuntimeException refused) {
            return text(refused);
        }
    }

    private static String text(Throwable error) {
        String cause = error.getCause() == null ? "" : " <- " + error.getCause();
        return (error.getClass().getSimpleName() + ": " + error.getMessage() + cause)
                .replaceAll("[\"\\\\\\s]+", " ");
    }
}
