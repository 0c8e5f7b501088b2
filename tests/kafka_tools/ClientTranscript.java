import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Writes and reads with Kafka's own producer and consumer (without groups), rightly and wrongly, and prints what came of it.
 *
 * A line is a step and its answer, or the class of the exception, as in AdminTranscript. The first argument is the broker's
 * address.
 */
public class ClientTranscript {
    interface Step {
        Object run() throws Exception;
    }

    private static final Duration READING_MAX = Duration.ofSeconds(15);
    /** Closing a consumer waits for its last fetch: let none wait long. */
    private static final Map<String, String> CONSUMER =
        Map.of("check.crcs", "true", "auto.offset.reset", "earliest", "fetch.max.wait.ms", "20");

    private static String bootstrap;
    private static Admin admin;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "default.api.timeout.ms", 10000, "request.timeout.ms", 10000));
        try (Admin closing = admin) {
            writing();
            codecs();
            refusals();
            timestamps();
            reading();
            recreation();
            admin.deleteTopics(admin.listTopics().names().get()).all().get();
        }
    }

    private static void step(String name, Step step) {
        Object answer;
        try {
            answer = step.run();
        } catch (ExecutionException failed) {
            answer = failed.getCause().getClass().getSimpleName();
        } catch (Exception failed) {
            answer = "directly " + failed.getClass().getSimpleName();
        }
        System.out.println(name + ": " + answer);
    }

    private static void create(String name, int partitions, Map<String, String> configs) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1).configs(configs))).all().get();
    }

    private static Map<String, Object> settings(Map<String, String> extra) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "max.block.ms", "10000"));
        settings.putAll(extra);
        return settings;
    }

    private static KafkaProducer<String, String> producer(Map<String, String> extra) {
        return new KafkaProducer<>(settings(extra), new StringSerializer(), new StringSerializer());
    }

    private static KafkaConsumer<String, String> consumer(Map<String, String> extra) {
        Map<String, String> all = new HashMap<>(CONSUMER);
        all.putAll(extra);
        Map<String, Object> settings = settings(all);
        settings.remove("max.block.ms");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static String describe(RecordMetadata metadata) {
        return metadata.topic() + "-" + metadata.partition() + "@" + metadata.offset()
            + " key " + metadata.serializedKeySize() + " value " + metadata.serializedValueSize();
    }

    private static String send(Map<String, String> extra, ProducerRecord<String, String> record) throws Exception {
        try (KafkaProducer<String, String> producer = producer(extra)) {
            return describe(producer.send(record).get());
        }
    }

    /** Polls until there are that many records. */
    private static List<ConsumerRecord<String, String>> read(KafkaConsumer<String, String> consumer, int count) {
        long deadline = System.nanoTime() + READING_MAX.toNanos();
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        while (records.size() < count && System.nanoTime() < deadline) {
            consumer.poll(Duration.ofMillis(200)).forEach(records::add);
        }
        return records;
    }

    private static List<ConsumerRecord<String, String>> readAll(Map<String, String> extra, TopicPartition... partitions) {
        try (KafkaConsumer<String, String> consumer = consumer(extra)) {
            consumer.assign(List.of(partitions));
            consumer.seekToBeginning(List.of(partitions));
            long start = consumer.beginningOffsets(List.of(partitions)).values().stream().mapToLong(Long::longValue).sum();
            long end = consumer.endOffsets(List.of(partitions)).values().stream().mapToLong(Long::longValue).sum();
            return read(consumer, (int) (end - start));
        }
    }

    private static String describe(ConsumerRecord<String, String> record) {
        StringBuilder text = new StringBuilder();
        text.append(record.offset()).append(" ").append(record.key()).append("=").append(record.value());
        for (Header header : record.headers()) {
            String value = header.value() == null ? "null" : new String(header.value(), StandardCharsets.UTF_8);
            text.append(" ").append(header.key()).append(":").append(value);
        }
        return text.append(" epoch ").append(record.leaderEpoch().orElse(-1)).toString();
    }

    // Writing

    private static void writing() throws Exception {
        create("plain", 3, Map.of());
        TopicPartition first = new TopicPartition("plain", 0);
        step("idempotent", () -> send(Map.of(), new ProducerRecord<>("plain", 0, "key", "value")));
        step("acks=1", () -> send(Map.of("acks", "1"), new ProducerRecord<>("plain", 0, "key", "one")));
        step("acks=0", () -> send(Map.of("acks", "0"), new ProducerRecord<>("plain", 0, "key", "zero")));
        step("not idempotent", () ->
            send(Map.of("enable.idempotence", "false"), new ProducerRecord<>("plain", 0, "key", "plain")));
        step("no key", () -> send(Map.of(), new ProducerRecord<>("plain", 0, null, "no key")));
        step("no value", () -> send(Map.of(), new ProducerRecord<>("plain", 0, "key", null)));
        step("neither", () -> send(Map.of(), new ProducerRecord<>("plain", 0, null, null)));
        step("empty", () -> send(Map.of(), new ProducerRecord<>("plain", 0, "", "")));
        step("headers", () -> {
            ProducerRecord<String, String> record = new ProducerRecord<>("plain", 0, "key", "headers");
            record.headers().add("a", "1".getBytes()).add("a", "2".getBytes()).add("none", null).add("", new byte[0]);
            return send(Map.of(), record);
        });
        step("read it back", () ->
            readAll(Map.of(), first).stream().map(ClientTranscript::describe).toList());
        step("keys choose partitions", () -> {
            Map<String, Integer> chosen = new TreeMap<>();
            try (KafkaProducer<String, String> producer = producer(Map.of())) {
                for (String key : List.of("a", "b", "c", "d", "e", "f")) {
                    chosen.put(key, producer.send(new ProducerRecord<>("plain", key, key)).get().partition());
                }
            }
            return chosen;
        });
        step("partitions for a topic", () -> {
            try (KafkaProducer<String, String> producer = producer(Map.of())) {
                return producer.partitionsFor("plain").stream().map(PartitionInfo::partition).sorted().toList();
            }
        });
        step("created on demand", () -> send(Map.of(), new ProducerRecord<>("on-demand", "key", "value")));
        step("2000 records in small batches, five in flight", () -> {
            create("many", 1, Map.of());
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            try (KafkaProducer<String, String> producer = producer(Map.of("batch.size", "300", "linger.ms", "0"))) {
                for (int i = 0; i < 2000; i++) {
                    sent.add(producer.send(new ProducerRecord<>("many", "key", Integer.toString(i))));
                }
                for (int i = 0; i < 2000; i++) {
                    if (sent.get(i).get().offset() != i) {
                        return "record " + i + " is at " + sent.get(i).get().offset();
                    }
                }
            }
            List<ConsumerRecord<String, String>> records = readAll(Map.of(), new TopicPartition("many", 0));
            for (int i = 0; i < records.size(); i++) {
                if (!records.get(i).value().equals(Integer.toString(i))) {
                    return "offset " + i + " has " + records.get(i).value();
                }
            }
            return records.size();
        });
    }

    private static void codecs() throws Exception {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            String topic = "codec-" + codec;
            create(topic, 1, Map.of());
            step("compression " + codec, () -> {
                try (KafkaProducer<String, String> producer = producer(Map.of("compression.type", codec, "linger.ms", "50"))) {
                    for (int i = 0; i < 500; i++) {
                        producer.send(new ProducerRecord<>(topic, "key", "value " + i));
                    }
                }
                List<ConsumerRecord<String, String>> records = readAll(Map.of(), new TopicPartition(topic, 0));
                return records.size() + " records, the last one " + describe(records.get(records.size() - 1));
            });
        }
        for (String codec : List.of("uncompressed", "gzip", "snappy", "lz4", "zstd")) {
            String topic = "stored-" + codec;
            create(topic, 1, Map.of("compression.type", codec));
            step("compressed by the broker with " + codec, () -> {
                try (KafkaProducer<String, String> producer = producer(Map.of("compression.type", "gzip", "linger.ms", "50"))) {
                    for (int i = 0; i < 500; i++) {
                        producer.send(new ProducerRecord<>(topic, "key", "value " + i));
                    }
                }
                List<ConsumerRecord<String, String>> records = readAll(Map.of(), new TopicPartition(topic, 0));
                return records.size() + " records, the last one " + describe(records.get(records.size() - 1));
            });
        }
    }

    private static void refusals() throws Exception {
        create("small", 1, Map.of("max.message.bytes", "2000"));
        create("compacted", 1, Map.of("cleanup.policy", "compact"));
        create("strict", 1, Map.of("message.timestamp.before.max.ms", "1000", "message.timestamp.after.max.ms", "1000"));
        create("two-copies", 1, Map.of("min.insync.replicas", "2"));
        Map<String, String> impatient = Map.of("max.block.ms", "700");
        Map<String, String> timed = Map.of("delivery.timeout.ms", "700", "request.timeout.ms", "500", "linger.ms", "0");
        step("a record that is too large", () -> send(Map.of(), new ProducerRecord<>("small", "key", "x".repeat(3000))));
        step("a batch that is too large is split", () -> {
            try (KafkaProducer<String, String> producer = producer(Map.of("linger.ms", "100"))) {
                for (int i = 0; i < 20; i++) {
                    producer.send(new ProducerRecord<>("small", "key", "x".repeat(300)));
                }
            }
            return readAll(Map.of(), new TopicPartition("small", 0)).size();
        });
        step("a record of a megabyte", () -> send(
            Map.of("max.request.size", "3000000"), new ProducerRecord<>("plain", 1, "key", "x".repeat(1048000))));
        step("a record above a megabyte", () -> send(
            Map.of("max.request.size", "3000000"), new ProducerRecord<>("plain", 1, "key", "x".repeat(1049000))));
        step("no key for a compacted topic", () -> send(Map.of(), new ProducerRecord<>("compacted", null, "value")));
        step("a key for a compacted topic", () -> send(Map.of(), new ProducerRecord<>("compacted", "key", "value")));
        step("too old", () -> send(Map.of(), new ProducerRecord<>("strict", 0, 1000L, "key", "value")));
        step("too new", () -> send(
            Map.of(), new ProducerRecord<>("strict", 0, System.currentTimeMillis() + 600000, "key", "value")));
        step("of now", () -> send(Map.of(), new ProducerRecord<>("strict", 0, System.currentTimeMillis(), "key", "value")));
        step("too few replicas, acks=all", () -> send(timed, new ProducerRecord<>("two-copies", "key", "value")));
        step("too few replicas, acks=1", () -> send(Map.of("acks", "1"), new ProducerRecord<>("two-copies", "key", "value")));
        step("a partition that is not there", () -> send(impatient, new ProducerRecord<>("plain", 9, "key", "value")));
        step("an impossible name", () -> send(impatient, new ProducerRecord<>("bad/name", "key", "value")));
        step("partitions of an impossible name", () -> {
            try (KafkaProducer<String, String> producer = producer(impatient)) {
                return producer.partitionsFor("bad/name");
            }
        });
    }

    private static void timestamps() throws Exception {
        create("append-time", 1, Map.of("message.timestamp.type", "LogAppendTime"));
        TopicPartition partition = new TopicPartition("append-time", 0);
        step("the broker's time", () -> {
            long before = System.currentTimeMillis();
            try (KafkaProducer<String, String> producer = producer(Map.of())) {
                RecordMetadata metadata = producer.send(new ProducerRecord<>("append-time", 0, 5000L, "key", "value")).get();
                long after = System.currentTimeMillis();
                return metadata.timestamp() >= before && metadata.timestamp() <= after;
            }
        });
        step("is read", () -> {
            ConsumerRecord<String, String> record = readAll(Map.of(), partition).get(0);
            return record.timestampType() + " recent " + (record.timestamp() > 1000000000000L);
        });
        create("times", 1, Map.of("retention.ms", "-1"));
        step("the producer's time", () -> {
            try (KafkaProducer<String, String> producer = producer(Map.of("linger.ms", "200"))) {
                for (long time = 1000; time <= 9000; time += 1000) {
                    producer.send(new ProducerRecord<>("times", 0, time, "key", "at " + time));
                }
            }
            ConsumerRecord<String, String> record = readAll(Map.of(), new TopicPartition("times", 0)).get(3);
            return record.timestampType() + " " + record.timestamp() + " " + record.value();
        });
        step("offsets for times", () -> {
            TopicPartition times = new TopicPartition("times", 0);
            Map<Long, String> found = new LinkedHashMap<>();
            try (KafkaConsumer<String, String> consumer = consumer(Map.of())) {
                for (long time : new long[] {0, 1000, 4500, 9000, 9001}) {
                    OffsetAndTimestamp at = consumer.offsetsForTimes(Map.of(times, time)).get(times);
                    found.put(time, at == null ? "none" : at.offset() + " of " + at.timestamp());
                }
            }
            return found;
        });
    }

    // Reading

    private static void reading() throws Exception {
        create("read", 2, Map.of());
        TopicPartition partition = new TopicPartition("read", 0);
        TopicPartition other = new TopicPartition("read", 1);
        try (KafkaProducer<String, String> producer = producer(Map.of("linger.ms", "200"))) {
            for (int i = 0; i < 100; i++) {
                producer.send(new ProducerRecord<>("read", 0, "key", "value " + i));
                producer.send(new ProducerRecord<>("read", 1, "key", "other " + i));
            }
        }
        step("begin and end", () -> {
            try (KafkaConsumer<String, String> consumer = consumer(Map.of())) {
                return new TreeMap<>(Map.of("begin", consumer.beginningOffsets(List.of(partition)).get(partition),
                    "end", consumer.endOffsets(List.of(partition)).get(partition)));
            }
        });
        step("from the middle of a batch", () -> {
            try (KafkaConsumer<String, String> consumer = consumer(Map.of())) {
                consumer.assign(List.of(partition));
                consumer.seek(partition, 57);
                List<ConsumerRecord<String, String>> records = read(consumer, 43);
                return records.size() + " from " + describe(records.get(0)) + ", position " + consumer.position(partition);
            }
        });
        step("committed only", () -> readAll(Map.of("isolation.level", "read_committed"), partition, other).size());
        step("a few bytes at a time", () ->
            readAll(Map.of("fetch.max.bytes", "1", "max.partition.fetch.bytes", "1"), partition, other).size());
        step("ten at a time", () -> {
            try (KafkaConsumer<String, String> consumer = consumer(Map.of("max.poll.records", "10"))) {
                consumer.assign(List.of(partition));
                Set<Integer> sizes = new HashSet<>();
                for (int left = 100; left > 0; ) {
                    int size = consumer.poll(Duration.ofSeconds(5)).count();
                    sizes.add(size);
                    left = size == 0 ? 0 : left - size;
                }
                return sizes;
            }
        });
        step("one partition paused", () -> {
            try (KafkaConsumer<String, String> consumer = consumer(Map.of())) {
                consumer.assign(List.of(partition, other));
                consumer.pause(List.of(other));
                Set<Integer> seen = new HashSet<>();
                read(consumer, 100).forEach(record -> seen.add(record.partition()));
                consumer.resume(List.of(other));
                read(consumer, 100).forEach(record -> seen.add(record.partition() + 10));
                return seen;
            }
        });
        step("waits for news", () -> {
            try (KafkaConsumer<String, String> consumer = consumer(Map.of("fetch.max.wait.ms", "3000"))) {
                consumer.assign(List.of(partition));
                consumer.seekToEnd(List.of(partition));
                long end = consumer.position(partition);
                consumer.poll(Duration.ofMillis(100));
                send(Map.of(), new ProducerRecord<>("read", 0, "key", "news"));
                long before = System.nanoTime();
                String news = describe(read(consumer, 1).get(0));
                return news + " soon " + (System.nanoTime() - before < 2_500_000_000L) + " at the end " + end;
            }
        });
        step("beyond the end, without a rule", () -> {
            try (KafkaConsumer<String, String> consumer = consumer(Map.of("auto.offset.reset", "none"))) {
                consumer.assign(List.of(partition));
                consumer.seek(partition, 5000);
                return read(consumer, 1).size();
            }
        });
        step("beyond the end, from the beginning", () -> {
            try (KafkaConsumer<String, String> consumer = consumer(Map.of())) {
                consumer.assign(List.of(partition));
                consumer.seek(partition, 5000);
                return describe(read(consumer, 1).get(0));
            }
        });
        step("before the beginning", () -> {
            admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(40))).all().get();
            try (KafkaConsumer<String, String> consumer = consumer(Map.of())) {
                consumer.assign(List.of(partition));
                consumer.seek(partition, 0);
                return describe(read(consumer, 1).get(0));
            }
        });
        step("current lag", () -> {
            try (KafkaConsumer<String, String> consumer = consumer(Map.of("max.poll.records", "10"))) {
                consumer.assign(List.of(other));
                consumer.seek(other, 30);
                read(consumer, 10);
                return consumer.currentLag(other).getAsLong();
            }
        });
        step("topics a consumer sees", () -> {
            try (KafkaConsumer<String, String> consumer = consumer(Map.of())) {
                return consumer.listTopics().containsKey("read") + " " + consumer.partitionsFor("read").size();
            }
        });
        step("an unknown topic, not to be created", () -> {
            try (KafkaConsumer<String, String> consumer = consumer(Map.of("allow.auto.create.topics", "false"))) {
                return consumer.partitionsFor("unknown", Duration.ofMillis(700));
            }
        });
        step("it was not created", () -> admin.listTopics().names().get().contains("unknown"));
    }

    private static void recreation() throws Exception {
        create("again", 1, Map.of());
        TopicPartition partition = new TopicPartition("again", 0);
        try (KafkaProducer<String, String> producer = producer(Map.of());
                KafkaConsumer<String, String> consumer = consumer(Map.of("metadata.max.age.ms", "500"))) {
            step("before the topic is deleted", () -> {
                producer.send(new ProducerRecord<>("again", 0, "key", "old")).get();
                consumer.assign(List.of(partition));
                return describe(read(consumer, 1).get(0));
            });
            step("delete it and create it again", () -> {
                admin.deleteTopics(List.of("again")).all().get();
                create("again", 1, Map.of());
                return "done";
            });
            step("the producer goes on", () -> describe(producer.send(new ProducerRecord<>("again", 0, "key", "new")).get()));
            step("the consumer goes on", () -> {
                consumer.seekToBeginning(List.of(partition));
                return describe(read(consumer, 1).get(0));
            });
        }
    }
}
