import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.zip.CRC32;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The application of the exactly-once campaign on Java's client: what application.py beside it does,
 * with the same arguments. The records are described in records.py.
 */
public class Transforming {
    static final String MARK = "to be aborted";

    final String bootstrap;
    final String slot;
    final int batch;
    final int abortEvery;
    final String protocol;
    final int sessionSeconds;
    final String born;
    KafkaProducer<String, String> producer;
    KafkaConsumer<String, String> consumer;
    int count;

    Transforming(String[] arguments) {
        bootstrap = arguments[0];
        slot = arguments[1];
        batch = Integer.parseInt(arguments[2]);
        abortEvery = Integer.parseInt(arguments[3]);
        protocol = arguments[4];
        sessionSeconds = Integer.parseInt(arguments[5]);
        born = slot + "/" + ProcessHandle.current().pid() + "/" + System.nanoTime();
    }

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    KafkaProducer<String, String> makeProducer() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("transactional.id", slot);
        properties.put("transaction.timeout.ms", "20000");
        properties.put("linger.ms", "20");
        properties.put("max.block.ms", "10000");
        return new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
    }

    KafkaConsumer<String, String> makeConsumer() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("group.id", "transforming");
        properties.put("group.protocol", protocol);
        properties.put("isolation.level", "read_committed");
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("max.poll.records", String.valueOf(batch));
        if (protocol.equals("classic")) {
            properties.put("session.timeout.ms", String.valueOf(1000 * sessionSeconds));
            properties.put("heartbeat.interval.ms", "500");
        }
        return new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
    }

    /** One life: ends with a KafkaException that only a new life helps against. */
    void live() {
        try {
            producer = makeProducer();
            again(() -> producer.initTransactions());
            consumer = makeConsumer();
            consumer.subscribe(List.of("in"));
            say("ready");
            while (true) {
                ConsumerRecords<String, String> found = consumer.poll(Duration.ofMillis(500));
                if (found.isEmpty()) {
                    say("idle");
                } else {
                    transform(found, consumer.groupMetadata());
                }
            }
        } finally {
            if (consumer != null) {
                consumer.close(CloseOptions.timeout(Duration.ofSeconds(1)));
            }
            if (producer != null) {
                producer.close(Duration.ZERO);
            }
        }
    }

    void transform(ConsumerRecords<String, String> found, ConsumerGroupMetadata metadata) {
        count++;
        try {
            if (count % abortEvery == 0) {
                write(found, metadata, true);
                producer.flush();
                again(() -> producer.abortTransaction());
                say("marked");
            }
            write(found, metadata, false);
            again(() -> producer.commitTransaction());
            say("committed " + found.count());
        } catch (KafkaException error) {
            say("aborted " + error);
            again(() -> producer.abortTransaction());
            for (TopicPartition where : found.partitions()) {
                if (consumer.assignment().contains(where)) {
                    consumer.seek(where, found.records(where).get(0).offset());
                }
            }
        }
    }

    void write(
            ConsumerRecords<String, String> found,
            ConsumerGroupMetadata metadata,
            boolean isMarked) {
        String name = born + "/" + count + (isMarked ? "-" : "");
        producer.beginTransaction();
        long sum = 0;
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (ConsumerRecord<String, String> record : found) {
            String value = record.value();
            if (value.equals(MARK)) {
                throw new AssertionError("an aborted input was read");
            }
            int number = Integer.parseInt(value.substring(0, value.indexOf(':')));
            String result = isMarked ? MARK : transformed(number, value);
            producer.send(new ProducerRecord<>("out", number % 4, name, result));
            producer.send(new ProducerRecord<>("audit", number / 4 % 4, name, result));
            sum += number;
            offsets.put(
                    new TopicPartition(record.topic(), record.partition()),
                    new OffsetAndMetadata(record.offset() + 1));
        }
        String manifest = isMarked ? MARK : found.count() + ":" + sum;
        producer.send(new ProducerRecord<>("manifest", 0, name, manifest));
        again(() -> producer.sendOffsetsToTransaction(offsets, metadata));
    }

    static String transformed(int number, String value) {
        CRC32 crc = new CRC32();
        crc.update(value.getBytes(StandardCharsets.UTF_8));
        return number + ":" + String.format("%08x", crc.getValue());
    }

    /** What ran out of time is said once more. */
    static void again(Runnable call) {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException error) {
                say("again " + error.getMessage());
            }
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        while (true) {
            try {
                new Transforming(arguments).live();
            } catch (KafkaException error) {
                say("anew " + error);
                Thread.sleep(100);
            }
        }
    }
}
