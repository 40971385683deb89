package echoless;

import java.nio.charset.StandardCharsets;
import org.apache.kafka.clients.producer.ProducerRecord;

/** The records of one seed, as tests/compatibility/README.md defines them. */
record Series(String topic, int seed, int partitions, long baseTimestamp) {
    private static final byte[] EMPTY = new byte[0];

    ProducerRecord<byte[], byte[]> record(int number) {
        Draws draws = new Draws(seed, number);
        long timestamp = baseTimestamp + 7L * number + draws.below(1000);
        byte[] key = key(draws);
        byte[] value = value(draws, key == null ? EMPTY : null);
        ProducerRecord<byte[], byte[]> record =
                new ProducerRecord<>(topic, number % partitions, timestamp, key, value);
        record.headers().add("n", text(Integer.toString(number)));
        for (int left = draws.below(4); left > 0; left--) {
            record.headers().add("hé", headerValue(draws));
        }
        return record;
    }

    private static byte[] key(Draws draws) {
        return switch (draws.below(8)) {
            case 0 -> null;
            case 1 -> EMPTY;
            default -> text("key-" + draws.below(5000));
        };
    }

    private static byte[] value(Draws draws, byte[] without) {
        return switch (draws.below(16)) {
            case 0 -> without;
            case 1 -> EMPTY;
            case 2 -> draws.fill(draws.below(4000));
            default -> draws.fill(draws.below(160));
        };
    }

    private static byte[] headerValue(Draws draws) {
        return switch (draws.below(4)) {
            case 0 -> null;
            case 1 -> EMPTY;
            default -> draws.fill(draws.below(24));
        };
    }

    private static byte[] text(String content) {
        return content.getBytes(StandardCharsets.UTF_8);
    }
}
