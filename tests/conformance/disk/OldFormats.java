import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;

/**
 * Writes one segment in the message formats of old Kafkas, with Apache Kafka's own builders, and
 * prints each record as Kafka reads it back: offset, timestamp, key, value (Base64; - for null).
 * Arguments: the file, the base offset, then "magic:codec:timestamp type:count" for each batch.
 */
public class OldFormats {
    static final long START_MS = 1_500_000_000_000L;

    public static void main(String[] arguments) throws Exception {
        ByteBuffer all = ByteBuffer.allocate(16 << 20);
        long offset = Long.parseLong(arguments[1]);
        for (int ordinal = 2; ordinal < arguments.length; ordinal++) {
            String[] parts = arguments[ordinal].split(":");
            byte magic = Byte.parseByte(parts[0]);
            CompressionType codec = CompressionType.forName(parts[1]);
            TimestampType type = magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE
                : parts[2].equals("append") ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
            int count = Integer.parseInt(parts[3]);
            long appendTime = type == TimestampType.LOG_APPEND_TIME
                ? START_MS + offset * 1000 + 500 : RecordBatch.NO_TIMESTAMP;
            MemoryRecordsBuilder builder = MemoryRecords.builder(
                ByteBuffer.allocate(1 << 20), magic, Compression.of(codec).build(), type, offset, appendTime);
            for (int at = 0; at < count; at++) {
                long timestamp = magic == 0 ? RecordBatch.NO_TIMESTAMP : START_MS + offset * 1000;
                byte[] key = offset % 3 == 0 ? null : ("k" + offset).getBytes(StandardCharsets.UTF_8);
                byte[] value = offset % 7 == 5 ? null
                    : ("value " + offset + " ").repeat(5).getBytes(StandardCharsets.UTF_8);
                builder.appendWithOffset(offset, timestamp, key, value);
                offset++;
            }
            all.put(builder.build().buffer());
        }
        all.flip();
        byte[] bytes = new byte[all.remaining()];
        all.duplicate().get(bytes);
        Files.write(Path.of(arguments[0]), bytes);
        for (Record record : MemoryRecords.readableRecords(all).records()) {
            System.out.println("record " + record.offset() + " " + record.timestamp()
                + " " + text(record.hasKey() ? record.key() : null)
                + " " + text(record.hasValue() ? record.value() : null));
        }
    }

    static String text(ByteBuffer bytes) {
        if (bytes == null)
            return "-";
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        return Base64.getEncoder().encodeToString(copy);
    }
}
