import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.function.BooleanSupplier;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ClassicGroupDescription;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.DescribeConsumerGroupsOptions;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Reads with groups of Kafka's own consumer, of both protocols, and looks at them with its admin client.
 *
 * A line is a step and its answer, or the class of the exception, as in AdminTranscript. All consumers of a step are polled
 * in turn by one thread until what is waited for has come. The first argument is the broker's address.
 */
public class GroupTranscript {
    interface Step {
        Object run() throws Exception;
    }

    private static final Duration WAIT_MAX = Duration.ofSeconds(40);
    private static final TopicPartition FIRST = new TopicPartition("orders", 0);
    private static final TopicPartition SECOND = new TopicPartition("orders", 1);
    private static final TopicPartition UNKNOWN = new TopicPartition("unknown", 0);
    /** The ways to share partitions: what a consumer is told. */
    private static final Map<String, Map<String, String>> WAYS = new TreeMap<>(Map.of(
        "range", classic(RangeAssignor.class),
        "round robin", classic(RoundRobinAssignor.class),
        "sticky", classic(StickyAssignor.class),
        "cooperative", classic(CooperativeStickyAssignor.class),
        "server uniform", Map.of("group.protocol", "consumer"),
        "server range", Map.of("group.protocol", "consumer", "group.remote.assignor", "range")));
    private static final Map<String, String> CLASSIC = Map.of("group.protocol", "classic");
    private static final Map<String, String> CONSUMER = Map.of("group.protocol", "consumer");

    private static String bootstrap;
    private static Admin admin;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "default.api.timeout.ms", 10000, "request.timeout.ms", 10000));
        try (Admin closing = admin) {
            fill("orders", 4, 100);
            for (String way : WAYS.keySet()) {
                sharing(way, WAYS.get(way));
            }
            for (Map<String, String> protocol : List.of(CLASSIC, CONSUMER)) {
                staticMembers(protocol);
                commits(protocol);
                removal(protocol);
            }
            patterns();
            growth();
            refusals();
            migration();
            offsetsByAdmin();
            listing();
            deleting();
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

    private static Map<String, String> classic(Class<?> assignor) {
        return Map.of("group.protocol", "classic", "partition.assignment.strategy", assignor.getName());
    }

    private static void fill(String topic, int partitions, int count) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap);
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < count; i++) {
                producer.send(new ProducerRecord<>(topic, i % partitions, "key", Integer.toString(i)));
            }
        }
    }

    private static KafkaConsumer<String, String> consumer(String group, Map<String, String> extra) {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "auto.offset.reset", "earliest", "enable.auto.commit", "false", "fetch.max.wait.ms", "20",
            "client.id", "somebody", "metadata.max.age.ms", "300", "heartbeat.interval.ms", "200",
            "allow.auto.create.topics", "false"));
        if ("consumer".equals(extra.get("group.protocol"))) {
            settings.remove("heartbeat.interval.ms");
        }
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.putAll(extra);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static KafkaConsumer<String, String> member(String group, Map<String, String> extra) {
        KafkaConsumer<String, String> consumer = consumer(group, extra);
        consumer.subscribe(List.of("orders"));
        return consumer;
    }

    private static Map<String, String> with(Map<String, String> settings, String name, String value) {
        Map<String, String> all = new HashMap<>(settings);
        all.put(name, value);
        return all;
    }

    /** Polls all of them in turn until it holds; what they read goes to `seen`. */
    @SafeVarargs
    private static void poll(Collection<String> seen, BooleanSupplier until, KafkaConsumer<String, String>... consumers) {
        long deadline = System.nanoTime() + WAIT_MAX.toNanos();
        while (!until.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("waited too long; partitions "
                    + Arrays.stream(consumers).map(consumer -> numbers(consumer.assignment())).toList());
            }
            for (KafkaConsumer<String, String> consumer : consumers) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(20))) {
                    seen.add(record.value());
                }
            }
        }
    }

    @SafeVarargs
    private static void untilShared(int each, KafkaConsumer<String, String>... consumers) {
        poll(new ArrayList<>(), () -> Arrays.stream(consumers).allMatch(one -> one.assignment().size() == each), consumers);
    }

    private static List<Integer> numbers(Collection<TopicPartition> partitions) {
        return partitions.stream().map(TopicPartition::partition).sorted().toList();
    }

    private static Map<String, Long> offsets(Map<TopicPartition, OffsetAndMetadata> committed) {
        Map<String, Long> found = new TreeMap<>();
        committed.forEach((partition, offset) -> found.put(partition.toString(), offset == null ? null : offset.offset()));
        return found;
    }

    private static Object committed(String group) throws Exception {
        return offsets(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get());
    }

    private static ConsumerGroupDescription described(String group) throws Exception {
        return admin.describeConsumerGroups(List.of(group)).describedGroups().get(group).get();
    }

    private static String describe(String group) throws Exception {
        ConsumerGroupDescription found = described(group);
        List<String> members = new ArrayList<>();
        for (MemberDescription member : found.members()) {
            members.add(member.clientId() + member.host() + " " + member.groupInstanceId().orElse("-")
                + " has " + numbers(member.assignment().topicPartitions()).size()
                + " target " + member.targetAssignment().map(target -> target.topicPartitions().size()).orElse(-1)
                + " upgraded " + member.upgraded().map(Object::toString).orElse("-"));
        }
        members.sort(null);
        return found.type() + " " + found.groupState() + " '" + found.partitionAssignor() + "' simple "
            + found.isSimpleConsumerGroup() + " coordinator " + found.coordinator().id() + " members " + members;
    }

    // Sharing

    private static void sharing(String way, Map<String, String> settings) {
        String group = "sharing " + way;
        Set<String> seen = new TreeSet<>();
        try (KafkaConsumer<String, String> one = member(group, settings)) {
            step(way + ", one member has all", () -> {
                poll(seen, () -> one.assignment().size() == 4, one);
                return numbers(one.assignment()) + ", generation above 0 " + (one.groupMetadata().generationId() > 0);
            });
            step(way + ", it reads all", () -> {
                poll(seen, () -> seen.size() == 100, one);
                one.commitSync();
                return committed(group);
            });
            step(way + ", described", () -> describe(group));
            try (KafkaConsumer<String, String> two = member(group, settings)) {
                step(way + ", two members have half each", () -> {
                    untilShared(2, one, two);
                    Set<Integer> all = new TreeSet<>(numbers(one.assignment()));
                    all.addAll(numbers(two.assignment()));
                    return all;
                });
                step(way + ", both described", () -> describe(group));
                step(way + ", the second goes on where the first was", () ->
                    two.assignment().stream().map(two::position).toList());
            }
            step(way + ", the second has left", () -> {
                untilShared(4, one);
                return describe(group);
            });
        }
        step(way + ", all have left", () -> describe(group));
        step(way + ", a new member begins at what was committed", () -> {
            try (KafkaConsumer<String, String> later = member(group, settings)) {
                untilShared(4, later);
                return later.assignment().stream().map(later::position).toList();
            }
        });
    }

    private static void staticMembers(Map<String, String> protocol) {
        String name = protocol.get("group.protocol") + " static";
        Map<String, String> settings = with(protocol, "group.instance.id", "desk");
        try (KafkaConsumer<String, String> one = member(name, settings)) {
            step(name + ", joins", () -> {
                untilShared(4, one);
                return describe(name);
            });
            step(name + ", another one of the same instance", () -> {
                try (KafkaConsumer<String, String> two = member(name, settings)) {
                    untilShared(4, two);
                    return describe(name);
                }
            });
            step(name + ", the first afterwards", () -> {
                for (long end = System.nanoTime() + 2_000_000_000L; System.nanoTime() < end; ) {
                    one.poll(Duration.ofMillis(50));
                }
                return numbers(one.assignment());
            });
        }
        step(name + ", closed", () -> describe(name));
        step(name + ", back again", () -> {
            try (KafkaConsumer<String, String> back = member(name, settings)) {
                untilShared(4, back);
                return describe(name);
            }
        });
        step(name + ", removed by name", () -> {
            admin.removeMembersFromConsumerGroup(name,
                new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("desk")))).all().get();
            return describe(name);
        });
        step(name + ", removed again", () -> admin.removeMembersFromConsumerGroup(name,
            new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("desk")))).memberResult(
                new MemberToRemove("desk")).get());
    }

    private static void commits(Map<String, String> protocol) {
        String name = protocol.get("group.protocol") + " commits";
        try (KafkaConsumer<String, String> one = member(name, protocol)) {
            step(name + ", nothing committed", () -> {
                untilShared(4, one);
                return offsets(one.committed(Set.of(FIRST, UNKNOWN)));
            });
            step(name + ", offset and metadata", () -> {
                one.commitSync(Map.of(FIRST, new OffsetAndMetadata(7, Optional.of(0), "seven")));
                OffsetAndMetadata found = one.committed(Set.of(FIRST)).get(FIRST);
                return found.offset() + " " + found.leaderEpoch() + " " + found.metadata();
            });
            step(name + ", backwards", () -> {
                one.commitSync(Map.of(FIRST, new OffsetAndMetadata(3)));
                return offsets(one.committed(Set.of(FIRST)));
            });
            step(name + ", beyond the end", () -> {
                one.commitSync(Map.of(FIRST, new OffsetAndMetadata(1000)));
                return offsets(one.committed(Set.of(FIRST)));
            });
            step(name + ", 4096 characters of metadata", () -> {
                one.commitSync(Map.of(FIRST, new OffsetAndMetadata(4, "x".repeat(4096))));
                return offsets(one.committed(Set.of(FIRST)));
            });
            step(name + ", 4097 characters of metadata", () -> {
                one.commitSync(Map.of(FIRST, new OffsetAndMetadata(5, "x".repeat(4097))));
                return offsets(one.committed(Set.of(FIRST)));
            });
            step(name + ", a topic that is not there", () -> {
                one.commitSync(Map.of(UNKNOWN, new OffsetAndMetadata(5)), Duration.ofMillis(700));
                return offsets(one.committed(Set.of(UNKNOWN)));
            });
            step(name + ", by somebody without a member id", () -> {
                try (KafkaConsumer<String, String> other = consumer(name, CLASSIC)) {
                    other.assign(List.of(FIRST));
                    other.commitSync(Map.of(FIRST, new OffsetAndMetadata(1)));
                    return "done";
                }
            });
        }
        step(name + ", by somebody without a member id when all have left", () -> {
            try (KafkaConsumer<String, String> other = consumer(name, CLASSIC)) {
                other.assign(List.of(FIRST));
                other.commitSync(Map.of(FIRST, new OffsetAndMetadata(1)));
                return committed(name);
            }
        });
        step(name + ", on its own with enable.auto.commit", () -> {
            Map<String, String> settings = with(with(protocol, "enable.auto.commit", "true"), "auto.commit.interval.ms", "100");
            Set<String> seen = new TreeSet<>();
            try (KafkaConsumer<String, String> own = member(name + " on its own", settings)) {
                poll(seen, () -> seen.size() == 100, own);
            }
            return committed(name + " on its own");
        });
    }

    private static void removal(Map<String, String> protocol) {
        String name = protocol.get("group.protocol") + " removal";
        try (KafkaConsumer<String, String> one = member(name, protocol)) {
            step(name + ", of all members", () -> {
                untilShared(4, one);
                one.assignment().forEach(one::position);  // it would ask for them when it is no member any more
                admin.removeMembersFromConsumerGroup(name, new RemoveMembersFromConsumerGroupOptions()).all().get();
                return described(name).groupState();
            });
            step(name + ", a commit of the removed one", () -> {
                one.commitSync(Map.of(FIRST, new OffsetAndMetadata(1)));
                return "done";
            });
            step(name + ", it joins again", () -> {
                poll(new ArrayList<>(), () -> {
                    try {
                        return described(name).members().size() == 1 && one.assignment().size() == 4;
                    } catch (Exception failed) {
                        throw new IllegalStateException(failed);
                    }
                }, one);
                one.commitSync(Map.of(FIRST, new OffsetAndMetadata(2)));
                return committed(name);
            });
        }
        step(name + ", of members that are not there", () -> {
            admin.removeMembersFromConsumerGroup(name,
                new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("nobody")))).memberResult(
                    new MemberToRemove("nobody")).get();
            return "done";
        });
    }

    // Subscriptions

    private static void patterns() throws Exception {
        fill("pattern-a", 1, 1);
        for (Map<String, String> protocol : List.of(CLASSIC, CONSUMER)) {
            String name = protocol.get("group.protocol") + " pattern";
            try (KafkaConsumer<String, String> one = consumer(name, protocol)) {
                step(name + ", matched by the client", () -> {
                    one.subscribe(Pattern.compile("pattern-.*"));
                    poll(new ArrayList<>(), () -> one.assignment().size() == 1, one);
                    return one.assignment();
                });
            }
        }
        try (KafkaConsumer<String, String> one = consumer("server pattern", CONSUMER)) {
            step("server pattern", () -> {
                one.subscribe(new SubscriptionPattern("patter[nm]-[ab]"));
                poll(new ArrayList<>(), () -> one.assignment().size() == 1, one);
                return one.assignment();
            });
            step("server pattern, another one", () -> {
                one.subscribe(new SubscriptionPattern("ord.*|pattern-a"));
                poll(new ArrayList<>(), () -> one.assignment().size() == 5, one);
                return one.assignment().stream().map(TopicPartition::toString).sorted().toList();
            });
        }
        step("server pattern that is none", () -> {
            try (KafkaConsumer<String, String> one = consumer("broken pattern", CONSUMER)) {
                one.subscribe(new SubscriptionPattern("(orders"));
                untilShared(4, one);
                return one.assignment();
            }
        });
    }

    private static void growth() throws Exception {
        for (Map<String, String> protocol : List.of(CLASSIC, CONSUMER)) {
            String name = protocol.get("group.protocol") + "-growth";
            fill(name, 1, 1);
            try (KafkaConsumer<String, String> one = consumer(name, protocol)) {
                one.subscribe(List.of(name, name + "-later"));
                step(name + ", one partition", () -> {
                    untilShared(1, one);
                    return one.assignment();
                });
                step(name + ", the topic grows", () -> {
                    admin.createPartitions(Map.of(name, NewPartitions.increaseTo(3))).all().get();
                    untilShared(3, one);
                    return numbers(one.assignment());
                });
                step(name + ", another topic comes", () -> {
                    fill(name + "-later", 2, 1);
                    untilShared(5, one);
                    return one.assignment().stream().map(TopicPartition::toString).sorted().toList();
                });
                step(name + ", and goes", () -> {
                    one.subscribe(List.of(name));
                    untilShared(3, one);
                    return numbers(one.assignment());
                });
            }
        }
    }

    // What is refused

    private static Object tryToJoin(String group, Map<String, String> settings) {
        try (KafkaConsumer<String, String> one = member(group, settings)) {
            untilShared(4, one);
            return numbers(one.assignment());
        }
    }

    private static void refusals() {
        step("a session that is too short", () ->
            tryToJoin("short", Map.of("session.timeout.ms", "1000", "heartbeat.interval.ms", "300")));
        step("a session that is too long", () ->
            tryToJoin("long", Map.of("session.timeout.ms", "1900000", "max.poll.interval.ms", "1900000")));
        step("an assignor the broker has not", () ->
            tryToJoin("assignor", Map.of("group.protocol", "consumer", "group.remote.assignor", "none")));
        try (KafkaConsumer<String, String> one = member("mixed", classic(RangeAssignor.class))) {
            untilShared(4, one);
            step("no assignor in common", () -> tryToJoin("mixed", classic(RoundRobinAssignor.class)));
        }
        step("no offset and no rule", () -> {
            try (KafkaConsumer<String, String> one = member("no rule", Map.of("auto.offset.reset", "none"))) {
                poll(new ArrayList<>(), () -> false, one);
                return "goes on";
            }
        });
    }

    // Groups that change their protocol

    private static void migration() {
        String group = "moving";
        try (KafkaConsumer<String, String> old = member(group, classic(RangeAssignor.class))) {
            step("moving, classic at first", () -> {
                untilShared(4, old);
                old.commitSync(Map.of(FIRST, new OffsetAndMetadata(5)));
                return describe(group);
            });
            try (KafkaConsumer<String, String> modern = member(group, CONSUMER)) {
                step("moving, a member of the new protocol comes", () -> {
                    untilShared(2, old, modern);
                    return describe(group);
                });
                step("moving, both commit", () -> {
                    old.commitSync(Map.of(FIRST, new OffsetAndMetadata(6)));
                    modern.commitSync(Map.of(SECOND, new OffsetAndMetadata(7)));
                    return committed(group);
                });
            }
            step("moving, and goes", () -> {
                untilShared(4, old);
                return describe(group);
            });
        }
        step("moving, nobody there", () -> describe(group));
        step("moving, an empty group takes the new protocol", () -> {
            try (KafkaConsumer<String, String> modern = member(group, CONSUMER)) {
                untilShared(4, modern);
                return describe(group) + committed(group);
            }
        });
        step("moving, and the old one", () -> {
            try (KafkaConsumer<String, String> old = member(group, classic(RangeAssignor.class))) {
                untilShared(4, old);
                return describe(group) + committed(group);
            }
        });
    }

    // The admin client

    private static void offsetsByAdmin() throws Exception {
        step("alter offsets of a group that is not there", () -> {
            admin.alterConsumerGroupOffsets("altered", Map.of(FIRST, new OffsetAndMetadata(5, "by hand"))).all().get();
            return committed("altered") + " " + describe("altered");
        });
        step("alter them again", () -> {
            admin.alterConsumerGroupOffsets("altered",
                Map.of(FIRST, new OffsetAndMetadata(6), SECOND, new OffsetAndMetadata(0))).all().get();
            return committed("altered");
        });
        step("alter an unknown partition", () -> {
            admin.alterConsumerGroupOffsets("altered", Map.of(UNKNOWN, new OffsetAndMetadata(5))).all().get();
            return committed("altered");
        });
        step("offsets of one partition", () -> offsets(admin.listConsumerGroupOffsets(
            Map.of("altered", new ListConsumerGroupOffsetsSpec().topicPartitions(List.of(SECOND, UNKNOWN))))
                .partitionsToOffsetAndMetadata("altered").get()));
        step("offsets of several groups", () -> {
            Map<String, ListConsumerGroupOffsetsSpec> specs = Map.of("altered", new ListConsumerGroupOffsetsSpec(),
                "moving", new ListConsumerGroupOffsetsSpec());
            Map<String, Object> found = new TreeMap<>();
            admin.listConsumerGroupOffsets(specs).all().get().forEach((group, map) -> found.put(group, offsets(map)));
            return found;
        });
        step("stable offsets only", () -> offsets(admin.listConsumerGroupOffsets(
            "altered", new ListConsumerGroupOffsetsOptions().requireStable(true)).partitionsToOffsetAndMetadata().get()));
        step("offsets of a group that is not there", () -> committed("nobody's"));
        try (KafkaConsumer<String, String> one = member("busy", CLASSIC)) {
            untilShared(4, one);
            step("alter offsets of a busy group", () -> {
                admin.alterConsumerGroupOffsets("busy", Map.of(FIRST, new OffsetAndMetadata(5))).all().get();
                return committed("busy");
            });
            step("delete offsets of a busy group", () -> {
                one.commitSync(Map.of(FIRST, new OffsetAndMetadata(5)));
                admin.deleteConsumerGroupOffsets("busy", Set.of(FIRST)).partitionResult(FIRST).get();
                return committed("busy");
            });
            step("delete a busy group", () -> admin.deleteConsumerGroups(List.of("busy")).all().get());
        }
        step("delete offsets", () -> {
            admin.deleteConsumerGroupOffsets("altered", Set.of(FIRST)).all().get();
            return committed("altered");
        });
        step("delete offsets of an unknown partition", () ->
            admin.deleteConsumerGroupOffsets("altered", Set.of(UNKNOWN)).partitionResult(UNKNOWN).get());
        step("delete offsets of a group that is not there", () ->
            admin.deleteConsumerGroupOffsets("nobody's", Set.of(FIRST)).all().get());
    }

    private static Object list(ListGroupsOptions options) throws Exception {
        Set<String> found = new TreeSet<>();
        for (GroupListing group : admin.listGroups(options).all().get()) {
            found.add(group.groupId() + " " + group.type().get() + " " + group.groupState().get() + " '" + group.protocol() + "'");
        }
        return found;
    }

    private static void listing() {
        step("list all", () -> list(new ListGroupsOptions()));
        step("list consumer groups", () -> list(ListGroupsOptions.forConsumerGroups()));
        step("list share groups", () -> list(ListGroupsOptions.forShareGroups()));
        step("list by type", () -> list(new ListGroupsOptions().withTypes(Set.of(GroupType.CONSUMER))));
        step("list by state", () -> {
            try (KafkaConsumer<String, String> one = member("live", CONSUMER)) {
                untilShared(4, one);
                return list(new ListGroupsOptions().inGroupStates(Set.of(GroupState.STABLE)));
            }
        });
        step("list by protocol", () -> list(new ListGroupsOptions().withProtocolTypes(Set.of("connect"))));
        step("describe a group that is not there", () -> describe("nobody's"));
        step("describe it as a classic one", () ->
            admin.describeClassicGroups(List.of("nobody's")).all().get());
        step("describe a classic group", () -> {
            ClassicGroupDescription found = admin.describeClassicGroups(List.of("moving")).all().get().get("moving");
            return found.protocol() + " '" + found.protocolData() + "' " + found.state() + " " + found.members().size();
        });
        step("describe with operations", () -> new TreeSet<>(admin.describeConsumerGroups(List.of("moving"),
            new DescribeConsumerGroupsOptions().includeAuthorizedOperations(true)).all().get().get("moving")
                .authorizedOperations()));
    }

    private static void deleting() {
        step("delete a group", () -> {
            admin.deleteConsumerGroups(List.of("altered")).all().get();
            return committed("altered");
        });
        step("delete it again", () -> admin.deleteConsumerGroups(List.of("altered")).all().get());
        step("delete a group of the new protocol", () -> {
            admin.deleteConsumerGroups(List.of("sharing server uniform")).all().get();
            return describe("sharing server uniform");
        });
        step("delete the rest", () -> {
            List<String> names = admin.listGroups().all().get().stream().map(GroupListing::groupId).toList();
            admin.deleteConsumerGroups(names).all().get();
            admin.deleteTopics(admin.listTopics().names().get()).all().get();
            return list(new ListGroupsOptions());
        });
    }
}
