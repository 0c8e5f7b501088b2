import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FenceProducersOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Writes in transactions with Kafka's own producer, rightly and wrongly, reads what came of it and looks at it with the admin
 * client.
 *
 * A line is a step and its answer, or the class of the exception, as in AdminTranscript. The first argument is the broker's
 * address.
 */
public class TransactionTranscript {
    interface Step {
        Object run() throws Exception;
    }

    private static final Duration WAIT_MAX = Duration.ofSeconds(30);
    private static final TopicPartition FIRST = new TopicPartition("ledger", 0);
    private static final TopicPartition SECOND = new TopicPartition("ledger", 1);
    @SuppressWarnings("removal")
    private static final ConsumerGroupMetadata GROUP = new ConsumerGroupMetadata("readers");

    private static String bootstrap;
    private static Admin admin;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "default.api.timeout.ms", 10000, "request.timeout.ms", 10000));
        try (Admin closing = admin) {
            admin.createTopics(List.of(new NewTopic("ledger", 2, (short) 1), new NewTopic("other", 1, (short) 1))).all().get();
            committing();
            aborting();
            interleaved();
            offsets();
            consumeAndProduce();
            fencing();
            timeouts();
            refusals();
            byAdmin();
            listing();
            admin.deleteTopics(admin.listTopics().names().get()).all().get();
        }
    }

    // What the steps need

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

    private static KafkaProducer<String, String> producer(String id, String... extra) {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "transactional.id", id, "max.block.ms", "20000", "linger.ms", "0"));
        for (int i = 0; i < extra.length; i += 2) {
            settings.put(extra[i], extra[i + 1]);
        }
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private static KafkaProducer<String, String> ready(String id, String... extra) {
        KafkaProducer<String, String> producer = producer(id, extra);
        producer.initTransactions();
        return producer;
    }

    private static long send(KafkaProducer<String, String> producer, TopicPartition to, String value) throws Exception {
        return producer.send(new ProducerRecord<>(to.topic(), to.partition(), "key", value)).get().offset();
    }

    private static List<String> read(String isolation, TopicPartition... partitions) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "isolation.level", isolation,
            "auto.offset.reset", "earliest", "fetch.max.wait.ms", "20");
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> all = List.of(partitions);
            consumer.assign(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            long deadline = System.nanoTime() + WAIT_MAX.toNanos();
            while (all.stream().anyMatch(each -> consumer.position(each) < ends.get(each))) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("does not reach the end: " + values);
                }
                consumer.poll(Duration.ofMillis(50)).forEach(record -> values.add(record.offset() + " " + record.value()));
            }
        }
        return values;
    }

    private static Object both(TopicPartition partition) {
        return "committed " + read("read_committed", partition) + " all " + read("read_uncommitted", partition);
    }

    /** The state when the markers have been written: a commit is answered before that. */
    private static TransactionDescription described(String id) throws Exception {
        TransactionDescription[] found = new TransactionDescription[1];
        until(() -> {
            found[0] = admin.describeTransactions(List.of(id)).description(id).get();
            return !found[0].state().name().startsWith("PREPARE_");
        });
        return found[0];
    }

    private static String describe(String id) throws Exception {
        TransactionDescription found = described(id);
        return found.state() + " epoch " + found.producerEpoch() + " timeout " + found.transactionTimeoutMs()
            + " began " + found.transactionStartTimeMs().isPresent() + " coordinator " + found.coordinatorId()
            + " in " + found.topicPartitions().stream().map(TransactionTranscript::name).sorted().toList();
    }

    /** Which partition of an internal topic it is depends on how many there are. */
    private static String name(TopicPartition partition) {
        return partition.topic().startsWith("__") ? partition.topic() : partition.toString();
    }

    private static List<ProducerState> producersOf(TopicPartition partition) throws Exception {
        return admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers();
    }

    private static long last(TopicPartition partition, IsolationLevel isolation) throws Exception {
        return admin.listOffsets(Map.of(partition, OffsetSpec.latest()), new ListOffsetsOptions(isolation))
            .partitionResult(partition).get().offset();
    }

    private static Object ends(TopicPartition partition) throws Exception {
        return "stable " + last(partition, IsolationLevel.READ_COMMITTED) + " end " + last(partition, IsolationLevel.READ_UNCOMMITTED);
    }

    private static void until(Callable<Boolean> condition) throws Exception {
        long deadline = System.nanoTime() + WAIT_MAX.toNanos();
        while (!condition.call()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("waited too long");
            }
            Thread.sleep(5);
        }
    }

    /** With `stable`, not before the offsets of transactions that are ending have been decided. */
    private static Object committed(String group, boolean stable) throws Exception {
        Map<String, Long> found = new TreeMap<>();
        admin.listConsumerGroupOffsets(group, new ListConsumerGroupOffsetsOptions().requireStable(stable).timeoutMs(1500))
            .partitionsToOffsetAndMetadata().get().forEach((partition, offset) -> found.put(partition.toString(), offset.offset()));
        return found;
    }

    // One producer

    private static void committing() throws Exception {
        try (KafkaProducer<String, String> producer = producer("commits")) {
            step("begin before the beginning", () -> {
                producer.beginTransaction();
                return "begun";
            });
            step("initialise", () -> {
                producer.initTransactions();
                return describe("commits");
            });
            step("initialise again", () -> {
                producer.initTransactions();
                return describe("commits");
            });
            step("a transaction", () -> {
                producer.beginTransaction();
                return send(producer, FIRST, "one") + " " + send(producer, FIRST, "two") + " " + send(producer, SECOND, "three");
            });
            step("while it is open", () -> describe("commits") + ", " + ends(FIRST) + ", " + ends(SECOND));
            step("what is read of it", () -> both(FIRST));
            step("commit", () -> {
                producer.commitTransaction();
                return describe("commits") + ", " + ends(FIRST) + ", " + ends(SECOND);
            });
            step("what is read afterwards", () -> both(FIRST));
            step("an empty transaction", () -> {
                producer.beginTransaction();
                producer.commitTransaction();
                return describe("commits") + ", " + ends(FIRST);
            });
            step("five more", () -> {
                for (int i = 0; i < 5; i++) {
                    producer.beginTransaction();
                    send(producer, FIRST, "more " + i);
                    producer.commitTransaction();
                }
                return describe("commits") + ", " + ends(FIRST);
            });
        }
    }

    private static void aborting() throws Exception {
        try (KafkaProducer<String, String> producer = ready("aborts")) {
            step("abort", () -> {
                producer.beginTransaction();
                send(producer, SECOND, "dropped");
                producer.abortTransaction();
                return describe("aborts") + ", " + ends(SECOND);
            });
            step("abort an empty transaction", () -> {
                producer.beginTransaction();
                producer.abortTransaction();
                return describe("aborts");
            });
            step("commit after an abort", () -> {
                producer.beginTransaction();
                send(producer, SECOND, "kept");
                producer.commitTransaction();
                described("aborts");
                return both(SECOND);
            });
            step("abort with records on their way", () -> {
                producer.beginTransaction();
                for (int i = 0; i < 200; i++) {
                    producer.send(new ProducerRecord<>("ledger", 1, "key", "late"));
                }
                producer.abortTransaction();
                described("aborts");
                return read("read_committed", SECOND);
            });
        }
    }

    // Many producers

    private static void interleaved() throws Exception {
        TopicPartition other = new TopicPartition("other", 0);
        try (KafkaProducer<String, String> a = ready("a"); KafkaProducer<String, String> b = ready("b");
                KafkaProducer<String, String> plain = plain()) {
            step("two transactions at once", () -> {
                a.beginTransaction();
                b.beginTransaction();
                send(a, other, "a1");
                send(plain, other, "plain 1");
                send(b, other, "b1");
                send(a, other, "a2");
                send(plain, other, "plain 2");
                return both(other) + ", " + ends(other);
            });
            step("the second commits", () -> {
                b.commitTransaction();
                described("b");
                return both(other) + ", " + ends(other);
            });
            step("the first aborts", () -> {
                a.abortTransaction();
                described("a");
                return both(other) + ", " + ends(other);
            });
            step("producers of the partition", () -> {
                Set<String> found = new TreeSet<>();
                for (ProducerState state : producersOf(other)) {
                    found.add("epoch " + state.producerEpoch() + " sequence " + state.lastSequence() + " coordinator "
                        + state.coordinatorEpoch() + " open " + state.currentTransactionStartOffset());
                }
                return found;
            });
        }
    }

    private static KafkaProducer<String, String> plain() {
        return new KafkaProducer<>(Map.of("bootstrap.servers", bootstrap), new StringSerializer(), new StringSerializer());
    }

    // Offsets in transactions

    @SuppressWarnings("removal")
    private static void offsets() throws Exception {
        try (KafkaProducer<String, String> producer = ready("offsets")) {
            step("offsets in an open transaction", () -> {
                producer.beginTransaction();
                producer.sendOffsetsToTransaction(Map.of(FIRST, new OffsetAndMetadata(3, "three")), GROUP);
                return committed("readers", false) + " " + describe("offsets");
            });
            step("stable offsets while it is open", () -> committed("readers", true));
            step("offsets after the commit", () -> {
                producer.commitTransaction();
                described("offsets");
                return committed("readers", true);
            });
            step("offsets of an aborted transaction", () -> {
                producer.beginTransaction();
                producer.sendOffsetsToTransaction(Map.of(FIRST, new OffsetAndMetadata(5)), GROUP);
                producer.abortTransaction();
                described("offsets");
                return committed("readers", true);
            });
            step("offsets twice in a transaction", () -> {
                producer.beginTransaction();
                producer.sendOffsetsToTransaction(Map.of(FIRST, new OffsetAndMetadata(6)), GROUP);
                producer.sendOffsetsToTransaction(Map.of(FIRST, new OffsetAndMetadata(7), SECOND, new OffsetAndMetadata(1)), GROUP);
                producer.commitTransaction();
                described("offsets");
                return committed("readers", true);
            });
            step("offsets of two groups", () -> {
                producer.beginTransaction();
                producer.sendOffsetsToTransaction(Map.of(FIRST, new OffsetAndMetadata(8)), GROUP);
                producer.sendOffsetsToTransaction(Map.of(FIRST, new OffsetAndMetadata(9)), new ConsumerGroupMetadata("others"));
                producer.commitTransaction();
                described("offsets");
                return committed("readers", true) + " " + committed("others", true);
            });
            step("offsets of no partition", () -> {
                producer.beginTransaction();
                producer.sendOffsetsToTransaction(Map.of(), GROUP);
                producer.commitTransaction();
                return "committed";
            });
            step("an older commit outside does not hide them", () -> {
                producer.beginTransaction();
                producer.sendOffsetsToTransaction(Map.of(FIRST, new OffsetAndMetadata(20)), GROUP);
                admin.alterConsumerGroupOffsets("readers", Map.of(FIRST, new OffsetAndMetadata(10))).all().get();
                producer.commitTransaction();
                described("offsets");
                return committed("readers", true);
            });
        }
        step("offsets with a member that nobody knows", () -> {
            try (KafkaProducer<String, String> producer = ready("stranger")) {
                producer.beginTransaction();
                producer.sendOffsetsToTransaction(Map.of(FIRST, new OffsetAndMetadata(30)),
                    new ConsumerGroupMetadata("readers", 4, "stranger", java.util.Optional.empty()));
                producer.commitTransaction();
                return committed("readers", true);
            }
        });
    }

    private static void consumeAndProduce() throws Exception {
        for (String protocol : List.of("classic", "consumer")) {
            String group = "copier " + protocol;
            step(group, () -> {
                admin.createTopics(List.of(new NewTopic("copy-" + protocol, 1, (short) 1))).all().get();
                Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "isolation.level", "read_committed",
                    "auto.offset.reset", "earliest", "group.id", group, "group.protocol", protocol,
                    "enable.auto.commit", "false", "max.poll.records", "3", "fetch.max.wait.ms", "20");
                int copied = 0;
                try (KafkaConsumer<String, String> consumer =
                            new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
                        KafkaProducer<String, String> producer = ready(group)) {
                    consumer.subscribe(List.of("ledger"));
                    long deadline = System.nanoTime() + WAIT_MAX.toNanos();
                    while (copied < 9 && System.nanoTime() < deadline) {
                        var records = consumer.poll(Duration.ofMillis(100));
                        if (records.isEmpty()) {
                            continue;
                        }
                        producer.beginTransaction();
                        records.forEach(record -> producer.send(new ProducerRecord<>("copy-" + protocol, record.value())));
                        producer.sendOffsetsToTransaction(records.nextOffsets(), consumer.groupMetadata());
                        producer.commitTransaction();
                        copied += records.count();
                    }
                }
                described(group);
                Set<String> values = new TreeSet<>();
                for (String line : read("read_committed", new TopicPartition("copy-" + protocol, 0))) {
                    values.add(line.substring(line.indexOf(' ') + 1));
                }
                return copied + " " + values;
            });
        }
    }

    // Zombies

    private static void fencing() throws Exception {
        KafkaProducer<String, String> zombie = ready("zombie");
        step("a second producer of the same name", () -> {
            zombie.beginTransaction();
            send(zombie, FIRST, "by the zombie");
            try (KafkaProducer<String, String> successor = ready("zombie")) {
                return describe("zombie");
            }
        });
        step("the zombie sends", () -> send(zombie, FIRST, "after its death"));
        step("the zombie commits", () -> {
            zombie.commitTransaction();
            return "committed";
        });
        step("the zombie aborts", () -> {
            zombie.abortTransaction();
            return "aborted";
        });
        zombie.close(Duration.ZERO);
        step("nothing of it is seen", () -> read("read_committed", FIRST).stream().filter(line -> line.contains("zombie")).toList());
        KafkaProducer<String, String> committer = ready("committer");
        step("fenced by an admin", () -> {
            committer.beginTransaction();
            send(committer, FIRST, "to be fenced");
            admin.fenceProducers(List.of("committer"), new FenceProducersOptions()).all().get();
            return describe("committer");
        });
        step("it commits", () -> {
            committer.commitTransaction();
            return "committed";
        });
        committer.close(Duration.ZERO);
        step("fence a name that nobody has", () -> {
            var fenced = admin.fenceProducers(List.of("nobody"));
            fenced.all().get();
            return "epoch " + fenced.epochId("nobody").get() + " " + describe("nobody");
        });
        KafkaProducer<String, String> terminated = ready("terminated");
        step("terminated by an admin", () -> {
            terminated.beginTransaction();
            send(terminated, FIRST, "to be terminated");
            admin.forceTerminateTransaction("terminated").result().get();
            return describe("terminated");
        });
        step("the terminated one commits", () -> {
            terminated.commitTransaction();
            return "committed";
        });
        terminated.close(Duration.ZERO);
    }

    private static void timeouts() throws Exception {
        step("a timeout that is too long", () -> {
            try (KafkaProducer<String, String> producer = ready("too long", "transaction.timeout.ms", "900001")) {
                return "ready";
            }
        });
        KafkaProducer<String, String> slow = ready("slow", "transaction.timeout.ms", "1000");
        step("a transaction that takes too long", () -> {
            slow.beginTransaction();
            send(slow, FIRST, "slow");
            until(() -> described("slow").state() == TransactionState.COMPLETE_ABORT);
            return describe("slow");
        });
        step("its commit", () -> {
            slow.commitTransaction();
            return "committed";
        });
        step("its abort", () -> {
            slow.abortTransaction();
            return "aborted";
        });
        step("its next transaction", () -> {
            slow.beginTransaction();
            send(slow, FIRST, "in time");
            slow.commitTransaction();
            described("slow");
            return read("read_committed", FIRST).stream().filter(line -> line.contains("in time") || line.contains("slow")).toList();
        });
        slow.close(Duration.ZERO);
    }

    private static void refusals() throws Exception {
        step("commit without a transaction", () -> {
            try (KafkaProducer<String, String> producer = ready("misuse")) {
                producer.commitTransaction();
                return "committed";
            }
        });
        step("send without a transaction", () -> {
            KafkaProducer<String, String> producer = ready("misuse");
            try {
                return send(producer, FIRST, "outside");
            } finally {
                producer.close(Duration.ZERO);  // it would wait for the record that it has just refused
            }
        });
        step("a record that is too large", () -> {
            try (KafkaProducer<String, String> producer = ready("large", "max.request.size", "3000000")) {
                producer.beginTransaction();
                send(producer, FIRST, "x".repeat(2000000));
                return "sent";
            }
        });
        step("and then", () -> describe("large"));
        step("commit after a failed record", () -> {
            try (KafkaProducer<String, String> producer = ready("failing", "max.request.size", "3000000")) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>("ledger", 0, "key", "x".repeat(2000000)));
                producer.commitTransaction();
                return "committed";
            }
        });
        step("the empty name", () -> {
            try (KafkaProducer<String, String> producer = ready("")) {
                return "ready";
            }
        });
        step("describe a transaction that is not there", () -> describe("unknown"));
        step("describe producers of an unknown partition", () -> admin.describeProducers(
            List.of(new TopicPartition("ledger", 9)),
            new org.apache.kafka.clients.admin.DescribeProducersOptions().timeoutMs(1000)).all().get());
    }

    // The admin client

    private static void byAdmin() throws Exception {
        KafkaProducer<String, String> hanging = ready("hanging");
        step("abort a transaction by its producer", () -> {
            hanging.beginTransaction();
            send(hanging, FIRST, "hanging");
            for (ProducerState state : producersOf(FIRST)) {
                if (state.currentTransactionStartOffset().isPresent()) {
                    admin.abortTransaction(new AbortTransactionSpec(
                        FIRST, state.producerId(), (short) state.producerEpoch(), state.coordinatorEpoch().orElse(0))).all().get();
                    return "epoch " + state.producerEpoch() + " coordinator " + state.coordinatorEpoch() + ", " + describe("hanging");
                }
            }
            return "nothing open";
        });
        step("with an epoch that is gone", () -> {
            for (ProducerState state : producersOf(FIRST)) {
                if (state.producerEpoch() > 1) {
                    return admin.abortTransaction(new AbortTransactionSpec(FIRST, state.producerId(), (short) 0, 0)).all().get();
                }
            }
            return "no such producer";
        });
        step("in a partition that is not there", () -> admin.abortTransaction(
            new AbortTransactionSpec(new TopicPartition("ledger", 9), 1, (short) 0, 0),
            new org.apache.kafka.clients.admin.AbortTransactionOptions().timeoutMs(1000)).all().get());
        step("of a producer that is not there", () -> admin.abortTransaction(
            new AbortTransactionSpec(FIRST, 999999, (short) 0, 0)).all().get());
        hanging.close(Duration.ZERO);
    }

    private static Object list(ListTransactionsOptions options) throws Exception {
        Set<String> found = new TreeSet<>();
        for (TransactionListing listing : admin.listTransactions(options).all().get()) {
            found.add(listing.transactionalId() + " " + listing.state());
        }
        return found;
    }

    private static void listing() throws Exception {
        step("list all transactions", () -> list(new ListTransactionsOptions()));
        step("list by state", () -> list(new ListTransactionsOptions().filterStates(Set.of(TransactionState.EMPTY))));
        step("list by a state that nobody has", () -> list(new ListTransactionsOptions().filterStates(Set.of(TransactionState.PREPARE_COMMIT))));
        step("list by producer", () -> {
            long id = described("commits").producerId();
            return list(new ListTransactionsOptions().filterProducerIds(Set.of(id)));
        });
        step("list by duration", () -> list(new ListTransactionsOptions().filterOnDuration(3600000)));
        step("list by pattern", () -> list(new ListTransactionsOptions().filterOnTransactionalIdPattern("c.*")));
        step("list by a pattern that is none", () -> list(new ListTransactionsOptions().filterOnTransactionalIdPattern("(c")));
    }
}
