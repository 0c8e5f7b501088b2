import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Makes a broker write every kind of record into __consumer_offsets and __transaction_state, always in the same order.
 *
 * Everything is done by one client at a time, which waits for the answer before the next one begins. The first argument is
 * the broker's address.
 */
public class InternalTopics {
    private static final Duration PATIENCE = Duration.ofSeconds(20);
    private static final TopicPartition FIRST = new TopicPartition("play", 0);
    private static final TopicPartition SECOND = new TopicPartition("play", 1);

    private static String bootstrap;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic("play", 2, (short) 1))).all().get();
            members("classic", "classic", Map.of());
            members("classic", "static", Map.of("group.instance.id", "desk"));
            members("consumer", "new", Map.of());
            members("consumer", "new-static", Map.of("group.instance.id", "desk"));
            members("consumer", "new-range", Map.of("group.remote.assignor", "range"));
            withoutMembers();
            transactions();
            admin.alterConsumerGroupOffsets("altered", Map.of(FIRST, new OffsetAndMetadata(1, "by an admin"))).all().get();
            admin.fenceProducers(List.of("mover")).all().get();
            admin.deleteConsumerGroupOffsets("simple", Set.of(SECOND)).all().get();
            for (String group : List.of("classic", "new", "simple")) {
                admin.deleteConsumerGroups(List.of(group)).all().get();
            }
        }
    }

    private static KafkaConsumer<String, String> consumer(String group, Map<String, String> extra) {
        Map<String, Object> settings = new HashMap<>(extra);
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("client.id", "somebody");
        settings.put("enable.auto.commit", "false");
        settings.put("fetch.max.wait.ms", "20");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static void members(String protocol, String group, Map<String, String> extra) {
        Map<String, String> settings = new HashMap<>(extra);
        settings.put("group.protocol", protocol);
        try (KafkaConsumer<String, String> consumer = consumer(group, settings)) {
            consumer.subscribe(List.of("play"));
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            while (consumer.assignment().size() < 2) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("the group " + group + " gives no partitions");
                }
                consumer.poll(Duration.ofMillis(50));
            }
            consumer.commitSync(Map.of(FIRST, new OffsetAndMetadata(2, "two of the first")));
            consumer.commitSync(Map.of(SECOND, new OffsetAndMetadata(3)));
        }
    }

    private static void withoutMembers() {
        try (KafkaConsumer<String, String> consumer = consumer("simple", Map.of())) {
            consumer.assign(List.of(FIRST, SECOND));
            consumer.commitSync(Map.of(FIRST, new OffsetAndMetadata(7)));
            consumer.commitSync(Map.of(SECOND, new OffsetAndMetadata(8)));
        }
    }

    private static void transactions() throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "transactional.id", "mover");
        ConsumerGroupMetadata group = new ConsumerGroupMetadata("simple");
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("play", 0, "key", "committed")).get();
            producer.send(new ProducerRecord<>("play", 1, "key", "committed")).get();
            producer.sendOffsetsToTransaction(Map.of(FIRST, new OffsetAndMetadata(9)), group);
            producer.commitTransaction();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("play", 0, "key", "aborted")).get();
            producer.sendOffsetsToTransaction(Map.of(FIRST, new OffsetAndMetadata(10)), group);
            producer.abortTransaction();
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(Map.of(FIRST, new OffsetAndMetadata(11)), group);
            producer.commitTransaction();
        }
    }
}
