import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Reads what is committed in a topic until each partition has given the value "end", and prints partition, offset and value
 * of each record as JSON: bootstrap address, topic, number of partitions.
 */
public final class Read {
    private Read() {}

    public static void main(String[] arguments) {
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0], "isolation.level", "read_committed");
        int partitions = Integer.parseInt(arguments[2]);
        List<String> found = new ArrayList<>();
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> all = IntStream.range(0, partitions)
                    .mapToObj(one -> new TopicPartition(arguments[1], one))
                    .toList();
            consumer.assign(all);
            consumer.seekToBeginning(all);
            for (int ended = 0; ended < partitions; ) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    found.add("[%d, %d, \"%s\"]".formatted(record.partition(), record.offset(), record.value()));
                    ended += record.value().equals("end") ? 1 : 0;
                }
            }
        }
        System.out.println(found);
    }
}
