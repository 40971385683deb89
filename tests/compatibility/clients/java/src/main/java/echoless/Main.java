package echoless;

import java.io.InputStream;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;

/** The Java client program; its command line is defined in tests/compatibility/README.md. */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments);
        long began = System.nanoTime();
        boolean succeeded;
        String summary;
        switch (options.command) {
            case "produce" -> {
                Produce run = new Produce(options);
                run.run();
                summary = run.summary();
                succeeded = run.succeeded();
            }
            case "consume" -> {
                Consume run = new Consume(options);
                run.run();
                summary = run.summary();
                succeeded = run.succeeded();
            }
            case "attempt" -> {
                summary = Attempts.run(options.text("cases"));
                succeeded = true;
            }
            case "subscribe" -> {
                Subscribe run = new Subscribe(options);
                run.run();
                summary = run.summary();
                succeeded = true;
            }
            default -> throw new IllegalArgumentException("produce, consume, attempt or subscribe, not " + options.command);
        }
        System.out.printf("{\"client\": \"kafka-clients\", \"version\": \"%s\", \"seconds\": %.3f, %s}%n",
                version(), (System.nanoTime() - began) / 1e9, summary);
        System.exit(succeeded ? 0 : 1);
    }

    private static String version() throws Exception {
        Properties properties = new Properties();
        try (InputStream in = KafkaProducer.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            properties.load(in);
        }
        return properties.getProperty("version");
    }
}
