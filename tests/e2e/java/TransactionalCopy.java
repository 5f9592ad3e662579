import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Fills a topic in transactions, half of them aborted; copies it in others; is fenced at last. */
public class TransactionalCopy {
    static final int TRANSACTIONS = 20;

    static KafkaProducer<String, String> producer(String bootstrap, String transactionalId) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("transactional.id", transactionalId);
        KafkaProducer<String, String> made =
                new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
        made.initTransactions();
        return made;
    }

    static KafkaConsumer<String, String> consumer(String bootstrap) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("group.id", "copy");
        properties.put("isolation.level", "read_committed");
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("max.poll.records", "50");
        return new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
    }

    static void fill(String bootstrap, int count) {
        try (KafkaProducer<String, String> source = producer(bootstrap, "source")) {
            for (int number = 0; number < TRANSACTIONS; number++) {
                source.beginTransaction();
                for (int index = 0; index < 2 * count / TRANSACTIONS; index++) {
                    source.send(new ProducerRecord<>("in", index % 2, null, number + "-" + index));
                }
                if (number % 2 == 0) {
                    source.commitTransaction();
                } else {
                    source.flush();
                    source.abortTransaction();
                }
            }
        }
    }

    static void copy(String bootstrap, int count, KafkaProducer<String, String> sink) {
        int round = 0;
        int done = 0;
        try (KafkaConsumer<String, String> consumer = consumer(bootstrap)) {
            consumer.subscribe(List.of("in"));
            while (done < count) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofSeconds(2));
                if (records.isEmpty()) {
                    continue;
                }
                sink.beginTransaction();
                for (ConsumerRecord<String, String> one : records) {
                    sink.send(new ProducerRecord<>("out", one.partition(), null, one.value()));
                }
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (TopicPartition where : records.partitions()) {
                    List<ConsumerRecord<String, String>> of = records.records(where);
                    offsets.put(where, new OffsetAndMetadata(of.get(of.size() - 1).offset() + 1));
                }
                sink.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (round++ % 4 == 3) {
                    sink.abortTransaction();
                    for (TopicPartition where : records.partitions()) {
                        consumer.seek(where, records.records(where).get(0).offset());
                    }
                } else {
                    sink.commitTransaction();
                    done += records.count();
                }
            }
        }
        System.out.println("copied " + done);
    }

    public static void main(String[] arguments) {
        String bootstrap = arguments[0];
        int count = Integer.parseInt(arguments[1]);
        fill(bootstrap, count);
        KafkaProducer<String, String> sink = producer(bootstrap, "sink");
        copy(bootstrap, count, sink);
        sink.beginTransaction();
        sink.send(new ProducerRecord<>("out", 0, null, "zombie"));
        sink.flush();
        producer(bootstrap, "sink").close();
        try {
            sink.commitTransaction();
        } catch (ProducerFencedException expected) {
            System.out.println("fenced");
        }
    }
}
