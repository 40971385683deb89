package echoless;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.ExecutionException;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.TaskManagerOptions;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.jobgraph.SavepointRestoreSettings;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.graph.StreamGraph;

/**
 * A job that copies a topic with Flink's exactly-once sink, in a cluster of its own: bootstrap address, topics, directory
 * of checkpoints, prefix of transactional ids, how they are named, parallelism, and the checkpoint or savepoint to begin
 * from, or "-".
 *
 * <p>Each line of the input is a command, answered by one line: "checkpoint" and "stop" by the path of the checkpoint, or
 * of the savepoint with which the job has stopped; "fail" has the job fail at its next record, which prints "failing".
 */
public final class FlinkCopy {
    private static final int RESTARTS = 3;
    private static volatile boolean mayFail;

    private FlinkCopy() {}

    public static void main(String[] arguments) throws Exception {
        String storage = arguments[3];
        int parallelism = Integer.parseInt(arguments[6]);
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.interval", "365 d"); // only when asked to
        settings.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
        settings.setString("execution.checkpointing.dir", "file://" + storage);
        settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", Integer.toString(RESTARTS));
        settings.setString("restart-strategy.fixed-delay.delay", "100 ms");
        settings.set(TaskManagerOptions.MANAGED_MEMORY_SIZE, MemorySize.ofMebiBytes(8));
        settings.set(TaskManagerOptions.NETWORK_MEMORY_MIN, MemorySize.ofMebiBytes(16));
        settings.set(TaskManagerOptions.NETWORK_MEMORY_MAX, MemorySize.ofMebiBytes(16));
        MiniClusterConfiguration configuration = new MiniClusterConfiguration.Builder()
                .setConfiguration(settings)
                .setNumTaskManagers(1)
                .setNumSlotsPerTaskManager(parallelism)
                .withRandomPorts()
                .build();
        MiniCluster cluster = new MiniCluster(configuration);
        cluster.start();
        StreamGraph graph = job(arguments, settings, parallelism);
        if (!arguments[7].equals("-")) {
            graph.setSavepointRestoreSettings(SavepointRestoreSettings.forPath(arguments[7]));
        }
        JobID job = cluster.submitJob(graph).get().getJobID();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String command = commands.readLine(); command != null; command = commands.readLine()) {
            switch (command) {
                case "checkpoint" -> say("checkpoint " + checkpoint(cluster, job));
                case "stop" ->
                        say("savepoint "
                                + cluster.stopWithSavepoint(job, "file://" + storage, false, SavepointFormatType.CANONICAL)
                                        .get());
                case "fail" -> mayFail = true;
                default -> throw new IllegalArgumentException(command);
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static StreamGraph job(String[] arguments, Configuration settings, int parallelism) {
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        environment.setParallelism(parallelism);
        KafkaSource<String> source = KafkaSource.<String>builder()
                .setBootstrapServers(arguments[0])
                .setTopics(arguments[1])
                .setGroupId("flink")
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setValueOnlyDeserializer(new SimpleStringSchema())
                .build();
        KafkaSink<String> sink = KafkaSink.<String>builder()
                .setBootstrapServers(arguments[0])
                .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder()
                        .setTopic(arguments[2])
                        .setValueSerializationSchema(new SimpleStringSchema())
                        .build())
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix(arguments[4])
                .setTransactionNamingStrategy(TransactionNamingStrategy.valueOf(arguments[5]))
                .setProperty("transaction.timeout.ms", Long.toString(Duration.ofMinutes(10).toMillis()))
                .setProperty("linger.ms", "0")
                .build();
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "inputs")
                .uid("inputs")
                .map((MapFunction<String, String>) FlinkCopy::passed)
                .returns(String.class)
                .uid("passed")
                .sinkTo(sink)
                .uid("outputs");
        return environment.getStreamGraph();
    }

    private static String passed(String value) {
        if (mayFail) {
            mayFail = false;
            say("failing");
            throw new IllegalStateException("asked to fail");
        }
        return value;
    }

    /** Takes a checkpoint as soon as every task runs. */
    private static String checkpoint(MiniCluster cluster, JobID job) throws Exception {
        while (true) {
            try {
                return cluster.triggerCheckpoint(job).get();
            } catch (ExecutionException error) {
                String status = cluster.getJobStatus(job).get().name();
                if (cluster.getJobStatus(job).get().isGloballyTerminalState()) {
                    return status;
                }
                Thread.sleep(50);
            }
        }
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
