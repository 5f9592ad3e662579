import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.StringJoiner;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.serialization.StringDeserializer;

/** What members.py is, for Java's consumer: arguments are BOOTSTRAP TOPIC GROUP ASSIGNOR. */
public class Members {
    static final Duration POLL = Duration.ofMillis(500);
    static final long PAUSE_MS = 200;
    static String bootstrap;
    static String topic;
    static String group;
    static String assignor;

    static synchronized void say(int member, String what, String more) {
        System.out.println(
                "{\"at\":" + System.nanoTime() + ",\"member\":" + member + ",\"what\":\"" + what
                        + "\"" + more + "}");
        System.out.flush();
    }

    static Properties properties() {
        Properties set = new Properties();
        set.put("bootstrap.servers", bootstrap);
        set.put("group.id", group);
        set.put("auto.offset.reset", "earliest");
        set.put("enable.auto.commit", "false");
        set.put("max.poll.interval.ms", "30000");
        set.put("max.poll.records", "500");
        set.put("default.api.timeout.ms", "10000");
        if (assignor.startsWith("consumer")) {
            set.put("group.protocol", "consumer");
            int colon = assignor.indexOf(':');
            set.put("group.remote.assignor", colon < 0 ? "uniform" : assignor.substring(colon + 1));
        } else {
            String name = "org.apache.kafka.clients.consumer.";
            switch (assignor) {
                case "range" -> name += "RangeAssignor";
                case "roundrobin" -> name += "RoundRobinAssignor";
                default -> name += "CooperativeStickyAssignor";
            }
            set.put("partition.assignment.strategy", name);
            set.put("session.timeout.ms", "6000");
            set.put("heartbeat.interval.ms", "1000");
        }
        return set;
    }

    static class Member extends Thread implements ConsumerRebalanceListener {
        final int number;
        volatile boolean leaving;
        KafkaConsumer<String, String> consumer;
        final Map<Integer, Long> pending = new TreeMap<>();

        Member(int number) {
            this.number = number;
            setDaemon(true);
        }

        @Override
        public void run() {
            consumer =
                    new KafkaConsumer<>(
                            properties(), new StringDeserializer(), new StringDeserializer());
            consumer.subscribe(List.of(topic), this);
            say(number, "started", "");
            while (!leaving) {
                try {
                    note(consumer.poll(POLL));
                    commit();
                } catch (KafkaException error) {
                    say(number, "failed", ",\"error\":\"" + clean(error) + "\"");
                }
                try {
                    Thread.sleep(PAUSE_MS);
                } catch (InterruptedException error) {
                    return;
                }
            }
            say(number, "leaving", "");
            try {
                consumer.close();
            } catch (KafkaException error) {
                say(number, "failed", ",\"error\":\"" + clean(error) + "\"");
            }
            say(number, "left", "");
        }

        void note(ConsumerRecords<String, String> records) {
            if (records.isEmpty()) {
                return;
            }
            StringJoiner ranges = new StringJoiner(",", "[", "]");
            int wrong = 0;
            for (TopicPartition where : records.partitions()) {
                long start = -1;
                long end = -1;
                for (ConsumerRecord<String, String> one : records.records(where)) {
                    wrong += one.value().equals(Long.toString(one.offset())) ? 0 : 1;
                    if (one.offset() != end) {
                        if (start >= 0) {
                            ranges.add("[" + where.partition() + "," + start + "," + end + "]");
                        }
                        start = one.offset();
                    }
                    end = one.offset() + 1;
                }
                ranges.add("[" + where.partition() + "," + start + "," + end + "]");
                pending.put(where.partition(), end);
            }
            say(number, "read", ",\"ranges\":" + ranges + ",\"wrong\":" + wrong);
        }

        void commit() {
            if (pending.isEmpty()) {
                return;
            }
            StringJoiner offsets = new StringJoiner(",", "[", "]");
            Map<TopicPartition, OffsetAndMetadata> asked = new HashMap<>();
            pending.forEach(
                    (partition, offset) -> {
                        offsets.add("[" + partition + "," + offset + "]");
                        asked.put(
                                new TopicPartition(topic, partition), new OffsetAndMetadata(offset));
                    });
            say(number, "committing", ",\"offsets\":" + offsets);
            try {
                consumer.commitSync(asked);
            } catch (KafkaException error) {
                boolean fenced =
                        error instanceof CommitFailedException
                                || error instanceof FencedInstanceIdException;
                say(
                        number,
                        "refused",
                        ",\"error\":\"" + clean(error) + "\",\"fenced\":" + fenced);
                return;
            }
            say(number, "committed", "");
            pending.clear();
        }

        String clean(Exception error) {
            String text = error.toString().replaceAll("[\"\\\\\n\r\t]", " ");
            return text.substring(0, Math.min(200, text.length()));
        }

        String numbers(Collection<TopicPartition> partitions) {
            TreeSet<Integer> found = new TreeSet<>();
            partitions.forEach(one -> found.add(one.partition()));
            return ",\"partitions\":" + new ArrayList<>(found);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            ConsumerGroupMetadata now = consumer.groupMetadata();
            String more = ",\"generation\":" + now.generationId() + ",\"id\":\"" + now.memberId();
            say(number, "assigned", numbers(partitions) + more + "\"");
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            commit();
            gone("revoked", partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            gone("lost", partitions);
        }

        void gone(String what, Collection<TopicPartition> partitions) {
            partitions.forEach(one -> pending.remove(one.partition()));
            say(number, what, numbers(partitions) + ",\"generation\":-1");
        }
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        topic = arguments[1];
        group = arguments[2];
        assignor = arguments[3];
        Map<String, Member> members = new HashMap<>();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("join")) {
                Member made = new Member(Integer.parseInt(words[1]));
                members.put(words[1], made);
                made.start();
            } else if (words[0].equals("leave")) {
                members.remove(words[1]).leaving = true;
            } else {
                break;
            }
        }
        for (Member member : members.values()) {
            member.leaving = true;
        }
        for (Member member : members.values()) {
            member.join(20_000);
        }
        Runtime.getRuntime().halt(0);
    }
}
