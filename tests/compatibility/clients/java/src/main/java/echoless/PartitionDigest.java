package echoless;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.Header;

/** What a reader reports of one partition, grown record by record in the order of offsets. */
final class PartitionDigest {
    private final MessageDigest sha;
    private final long firstOffset;
    private long nextOffset;
    private long count;
    private long gaps;

    PartitionDigest(long firstOffset) {
        this.firstOffset = this.nextOffset = firstOffset;
        try {
            sha = MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException impossible) {
            throw new AssertionError(impossible);
        }
    }

    void add(long offset, byte[] canonical) {
        if (offset != nextOffset) {
            gaps++;
        }
        nextOffset = offset + 1;
        count++;
        sha.update(canonical);
    }

    long nextOffset() {
        return nextOffset;
    }

    String report() {
        return String.format(
                "{\"count\": %d, \"first_offset\": %d, \"next_offset\": %d, \"gaps\": %d, \"digest\": \"%s\"}",
                count, firstOffset, nextOffset, gaps, HexFormat.of().formatHex(sha.digest()));
    }

    static byte[] canonical(ConsumerRecord<byte[], byte[]> record) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream(256);
        try (DataOutputStream out = new DataOutputStream(bytes)) {
            out.writeLong(record.timestamp());
            writeField(out, record.key());
            writeField(out, record.value());
            Header[] headers = record.headers().toArray();
            out.writeInt(headers.length);
            for (Header header : headers) {
                writeField(out, header.key().getBytes(StandardCharsets.UTF_8));
                writeField(out, header.value());
            }
        } catch (IOException impossible) {
            throw new AssertionError(impossible);
        }
        return bytes.toByteArray();
    }

    private static void writeField(DataOutputStream out, byte[] content) throws IOException {
        out.writeInt(content == null ? -1 : content.length);
        if (content != null) {
            out.write(content);
        }
    }
}
