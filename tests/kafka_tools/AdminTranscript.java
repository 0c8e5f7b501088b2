import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.AlterConfigsOptions;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreatePartitionsOptions;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.DeleteRecordsOptions;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Calls everything of Kafka's admin client that a broker serves, with right and wrong input, and prints what came of it.
 *
 * A line is a step and its answer, or the class of the exception; messages, ids, times and addresses are left out. So two
 * brokers that behave alike print the same lines. The first argument is the broker's address; its id has to be 0.
 */
public class AdminTranscript {
    interface Step {
        Object run() throws Exception;
    }

    /** How long to wait for what never comes, such as a partition that does not exist. */
    private static final int PATIENCE_MS = 700;
    private static final Duration SETTLING_MAX = Duration.ofSeconds(10);
    private static final DescribeConfigsOptions EVERYTHING =
        new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
    private static final DescribeConfigsOptions EVERYTHING_SOON =
        new DescribeConfigsOptions().includeSynonyms(true).timeoutMs(PATIENCE_MS);
    private static final Set<String> NOT_IN_KAFKA = Set.of("flush.mode");

    private static Admin admin;
    private static String bootstrap;
    private static int marks;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("default.api.timeout.ms", 4000);
        settings.put("request.timeout.ms", 4000);
        admin = Admin.create(settings);
        try (Admin closing = admin) {
            cluster();
            createTopics();
            describeTopics();
            createPartitions();
            topicConfigs();
            alterTopicConfigs();
            brokerConfigs();
            offsets();
            logDirs();
            deleteRecords();
            configResources();
            deleteTopics();
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

    /**
     * Wait until everything done so far can be seen. Kafka's broker follows its controller a moment later, change after
     * change: so make one more change and wait for that.
     */
    private static void settle() throws Exception {
        String mark = Long.toString(20000 + ++marks);
        ConfigEntry entry = new ConfigEntry("log.cleaner.backoff.ms", mark);
        admin.incrementalAlterConfigs(Map.of(ALL_BROKERS, List.of(new AlterConfigOp(entry, OpType.SET)))).all().get();
        long deadline = System.nanoTime() + SETTLING_MAX.toNanos();
        while (!mark.equals(configs(BROKER).get(entry.name()).value())) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("the broker has not taken over a change");
            }
        }
    }

    // The cluster

    private static void cluster() {
        step("cluster", () -> {
            DescribeClusterResult result = admin.describeCluster();
            return "id has " + result.clusterId().get().length() + " characters, nodes " + result.nodes().get().size()
                + ", controller " + result.controller().get().id() + ", operations " + result.authorizedOperations().get();
        });
        step("cluster with operations", () -> new TreeSet<>(
            admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true)).authorizedOperations().get()));
        step("cluster with fenced brokers", () ->
            admin.describeCluster(new DescribeClusterOptions().includeFencedBrokers(true)).nodes().get().size());
    }

    // Topics

    private static Object create(NewTopic topic, boolean isTrial) throws Exception {
        CreateTopicsResult result = admin.createTopics(List.of(topic), new CreateTopicsOptions().validateOnly(isTrial));
        String name = topic.name();
        result.values().get(name).get();
        settle();
        boolean hasId = !result.topicId(name).get().equals(Uuid.ZERO_UUID);
        return "partitions " + result.numPartitions(name).get() + ", replicas " + result.replicationFactor(name).get()
            + ", has id " + hasId + ", overrides " + overrides(result.config(name).get());
    }

    private static Map<String, String> overrides(Config config) {
        Map<String, String> found = new TreeMap<>();
        for (ConfigEntry entry : config.entries()) {
            if (entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG) {
                found.put(entry.name(), entry.value());
            }
        }
        return found;
    }

    private static NewTopic topic(String name, int partitions, int replicas) {
        return new NewTopic(name, partitions, (short) replicas);
    }

    private static void createTopics() {
        step("try a topic", () -> create(topic("orders", 3, 1), true));
        step("topics after the trial", () -> admin.listTopics().names().get());
        step("create a topic", () -> create(topic("orders", 3, 1), false));
        step("create it again", () -> create(topic("orders", 3, 1), false));
        step("try it again", () -> create(topic("orders", 3, 1), true));
        step("create with the broker's defaults", () -> create(topic("defaults", -1, -1), false));
        step("create with settings", () -> create(
            topic("settings", 1, 1).configs(Map.of("cleanup.policy", "compact", "segment.bytes", "10485760")), false));
        step("create with replicas by hand", () -> create(
            new NewTopic("by-hand", Map.of(0, List.of(0), 1, List.of(0))), false));
        step("0 partitions", () -> create(topic("bad", 0, 1), false));
        step("-2 partitions", () -> create(topic("bad", -2, 1), false));
        step("0 replicas", () -> create(topic("bad", 1, 0), false));
        step("3 replicas on one broker", () -> create(topic("bad", 1, 3), false));
        step("an unknown setting", () -> create(topic("bad", 1, 1).configs(Map.of("no.such.setting", "1")), false));
        step("a setting of the wrong type", () -> create(topic("bad", 1, 1).configs(Map.of("retention.ms", "long")), false));
        step("a setting out of range", () -> create(topic("bad", 1, 1).configs(Map.of("retention.ms", "-2")), false));
        step("a setting that is none of the choices",
            () -> create(topic("bad", 1, 1).configs(Map.of("cleanup.policy", "burn")), false));
        step("a setting without a value", () -> {
            Map<String, String> configs = new HashMap<>();
            configs.put("retention.ms", null);
            return create(topic("bad", 1, 1).configs(configs), false);
        });
        step("local retention above retention", () -> create(
            topic("local", 1, 1).configs(Map.of("retention.ms", "1000", "local.retention.ms", "2000")), false));
        step("a name with a slash", () -> create(topic("bad/name", 1, 1), false));
        step("a name with a space", () -> create(topic("bad name", 1, 1), false));
        step("the name '.'", () -> create(topic(".", 1, 1), false));
        step("the name '..'", () -> create(topic("..", 1, 1), false));
        step("the empty name", () -> create(topic("", 1, 1), false));
        step("a name of 249 characters", () -> create(topic("x".repeat(249), 1, 1), true));
        step("a name of 250 characters", () -> create(topic("x".repeat(250), 1, 1), true));
        step("a name that collides", () -> {
            create(topic("a.b", 1, 1), false);
            return create(topic("a_b", 1, 1), false);
        });
        step("by hand on a broker that is not there", () -> create(new NewTopic("bad", Map.of(0, List.of(7))), false));
        step("by hand twice on one broker", () -> create(new NewTopic("bad", Map.of(0, List.of(0, 0))), false));
        step("by hand without replicas", () -> create(new NewTopic("bad", Map.of(0, List.of())), false));
        step("by hand with a gap", () -> create(new NewTopic("bad", Map.of(0, List.of(0), 2, List.of(0))), false));
        step("by hand from partition 1", () -> create(new NewTopic("bad", Map.of(1, List.of(0))), false));
        step("one right and one wrong in one request", () -> {
            CreateTopicsResult result = admin.createTopics(List.of(topic("right", 1, 1), topic("wrong", 1, 9)));
            result.values().get("right").get();
            return create(topic("right", 1, 1), false);
        });
        step("topics", () -> new TreeSet<>(admin.listTopics().names().get()));
        step("topics with internal ones", () ->
            new TreeSet<>(admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get()));
    }

    private static String describe(TopicDescription topic) {
        StringBuilder text = new StringBuilder(topic.name() + " internal " + topic.isInternal());
        for (TopicPartitionInfo partition : topic.partitions()) {
            text.append(" [").append(partition.partition())
                .append(" leader ").append(partition.leader().id())
                .append(" replicas ").append(partition.replicas().stream().map(node -> node.id()).toList())
                .append(" isr ").append(partition.isr().stream().map(node -> node.id()).toList())
                .append(" elr ").append(partition.elr())
                .append("]");
        }
        return text.toString();
    }

    private static TopicDescription described(String name) throws Exception {
        return admin.describeTopics(List.of(name)).topicNameValues().get(name).get();
    }

    private static Uuid idOf(String name) throws Exception {
        return described(name).topicId();
    }

    private static void describeTopics() {
        step("describe a topic", () -> describe(described("orders")));
        step("describe by id", () -> {
            Uuid id = idOf("by-hand");
            return describe(admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).topicIdValues().get(id).get());
        });
        step("describe with operations", () -> new TreeSet<>(
            admin.describeTopics(List.of("orders"), new DescribeTopicsOptions().includeAuthorizedOperations(true))
                .topicNameValues().get("orders").get().authorizedOperations()));
        step("describe in pages of two partitions", () -> {
            Map<String, TopicDescription> all = admin.describeTopics(
                List.of("orders", "settings", "by-hand"), new DescribeTopicsOptions().partitionSizeLimitPerResponse(2))
                .allTopicNames().get();
            return new TreeMap<>(all).values().stream().map(AdminTranscript::describe).toList();
        });
        step("describe an unknown topic", () -> described("unknown"));
        step("describe a topic with an impossible name", () -> described("bad/name"));
        step("describe an unknown id", () -> {
            Uuid id = new Uuid(12, 34);
            return admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).topicIdValues().get(id).get();
        });
    }

    private static Object grow(String name, NewPartitions to, boolean isTrial) throws Exception {
        CreatePartitionsOptions options = new CreatePartitionsOptions().validateOnly(isTrial);
        admin.createPartitions(Map.of(name, to), options).values().get(name).get();
        settle();
        return described(name).partitions().size();
    }

    private static void createPartitions() {
        step("try to grow", () -> grow("orders", NewPartitions.increaseTo(4), true));
        step("grow", () -> grow("orders", NewPartitions.increaseTo(4), false));
        step("grow by hand", () -> grow("orders", NewPartitions.increaseTo(5, List.of(List.of(0))), false));
        step("grow to the same", () -> grow("orders", NewPartitions.increaseTo(5), false));
        step("shrink", () -> grow("orders", NewPartitions.increaseTo(2), false));
        step("grow to 0", () -> grow("orders", NewPartitions.increaseTo(0), false));
        step("grow to -1", () -> grow("orders", NewPartitions.increaseTo(-1), false));
        step("grow an unknown topic", () -> grow("unknown", NewPartitions.increaseTo(2), false));
        step("grow by hand with too few", () -> grow("orders", NewPartitions.increaseTo(8, List.of(List.of(0))), false));
        step("grow by hand with too many",
            () -> grow("orders", NewPartitions.increaseTo(6, List.of(List.of(0), List.of(0))), false));
        step("grow by hand on a broker that is not there",
            () -> grow("orders", NewPartitions.increaseTo(6, List.of(List.of(9))), false));
        step("grow by hand with another number of replicas",
            () -> grow("orders", NewPartitions.increaseTo(6, List.of(List.of(0, 1))), false));
        step("grow by hand without replicas", () -> grow("orders", NewPartitions.increaseTo(6, List.of(List.of())), false));
    }

    // Settings

    private static final ConfigResource ORDERS = new ConfigResource(ConfigResource.Type.TOPIC, "orders");
    private static final ConfigResource BROKER = new ConfigResource(ConfigResource.Type.BROKER, "0");
    private static final ConfigResource ALL_BROKERS = new ConfigResource(ConfigResource.Type.BROKER, "");

    private static Config configs(ConfigResource resource) throws Exception {
        DescribeConfigsOptions options = resource.name().equals("9") ? EVERYTHING_SOON : EVERYTHING;
        return admin.describeConfigs(List.of(resource), options).values().get(resource).get();
    }

    private static String describe(ConfigEntry entry) {
        return entry.name() + "=" + entry.value() + " " + entry.source() + " " + entry.type()
            + (entry.isReadOnly() ? " read-only" : "") + (entry.isSensitive() ? " sensitive" : "")
            + (entry.documentation() == null || entry.documentation().isBlank() ? " undocumented" : "");
    }

    private static Object synonyms(ConfigResource resource, String name) throws Exception {
        return configs(resource).get(name).synonyms().stream()
            .map(synonym -> synonym.source() + " " + synonym.name() + "=" + synonym.value()).toList();
    }

    private static void topicConfigs() {
        step("settings of a topic", () -> {
            Map<String, String> lines = new TreeMap<>();
            for (ConfigEntry entry : configs(ORDERS).entries()) {
                if (!NOT_IN_KAFKA.contains(entry.name())) {
                    lines.put(entry.name(), describe(entry));
                }
            }
            return "\n  " + String.join("\n  ", lines.values());
        });
        step("synonyms of a topic's setting", () -> synonyms(ORDERS, "max.message.bytes"));
        step("settings without documentation", () ->
            admin.describeConfigs(List.of(ORDERS)).values().get(ORDERS).get().get("retention.ms").documentation());
        step("settings of an unknown topic", () -> configs(new ConfigResource(ConfigResource.Type.TOPIC, "unknown")));
        step("settings of an impossible topic", () -> configs(new ConfigResource(ConfigResource.Type.TOPIC, "bad/name")));
    }

    private static Object alter(ConfigResource resource, boolean isTrial, AlterConfigOp... changes) throws Exception {
        admin.incrementalAlterConfigs(Map.of(resource, List.of(changes)), alterOptions(resource, isTrial))
            .values().get(resource).get();
        settle();
        return resource.type() == ConfigResource.Type.TOPIC ? overrides(configs(resource)) : "done";
    }

    private static AlterConfigsOptions alterOptions(ConfigResource resource, boolean isTrial) {
        AlterConfigsOptions options = new AlterConfigsOptions().validateOnly(isTrial);
        return resource.name().equals("9") ? options.timeoutMs(PATIENCE_MS) : options;
    }

    private static AlterConfigOp change(OpType type, String name, String value) {
        return new AlterConfigOp(new ConfigEntry(name, value), type);
    }

    private static AlterConfigOp set(String name, String value) {
        return change(OpType.SET, name, value);
    }

    private static void alterTopicConfigs() {
        step("try to set", () -> alter(ORDERS, true, set("retention.ms", "1000")));
        step("set", () -> alter(ORDERS, false, set("retention.ms", "3600000"), set("max.message.bytes", "100000")));
        step("synonyms of what was set", () -> synonyms(ORDERS, "max.message.bytes"));
        step("set again", () -> alter(ORDERS, false, set("retention.ms", "7200000")));
        step("append", () -> alter(ORDERS, false, change(OpType.APPEND, "cleanup.policy", "compact")));
        step("append what is there", () -> alter(ORDERS, false, change(OpType.APPEND, "cleanup.policy", "compact")));
        step("subtract", () -> alter(ORDERS, false, change(OpType.SUBTRACT, "cleanup.policy", "delete")));
        step("subtract what is not there", () -> alter(ORDERS, false, change(OpType.SUBTRACT, "cleanup.policy", "delete")));
        step("delete", () -> alter(ORDERS, false, change(OpType.DELETE, "cleanup.policy", null)));
        step("delete what is not set", () -> alter(ORDERS, false, change(OpType.DELETE, "segment.ms", null)));
        step("delete an unknown setting", () -> alter(ORDERS, false, change(OpType.DELETE, "no.such.setting", null)));
        step("set an unknown setting", () -> alter(ORDERS, false, set("no.such.setting", "1")));
        step("set a value of the wrong type", () -> alter(ORDERS, false, set("retention.ms", "abc")));
        step("set a value out of range", () -> alter(ORDERS, false, set("max.message.bytes", "-1")));
        step("set nothing", () -> alter(ORDERS, false, set("retention.ms", null)));
        step("set the empty value", () -> alter(ORDERS, false, set("retention.ms", "")));
        step("append to a number", () -> alter(ORDERS, false, change(OpType.APPEND, "retention.ms", "1")));
        step("append a wrong value", () -> alter(ORDERS, false, change(OpType.APPEND, "cleanup.policy", "burn")));
        step("one right and one wrong", () -> alter(ORDERS, false, set("segment.ms", "1000"), set("flush.ms", "abc")));
        step("set twice in one request", () -> alter(ORDERS, false, set("flush.ms", "1"), set("flush.ms", "2")));
        step("try a wrong value", () -> alter(ORDERS, true, set("retention.ms", "abc")));
        step("nothing wrong was set", () -> overrides(configs(ORDERS)));
        step("set for an unknown topic",
            () -> alter(new ConfigResource(ConfigResource.Type.TOPIC, "unknown"), false, set("retention.ms", "1")));
        step("set for an impossible topic",
            () -> alter(new ConfigResource(ConfigResource.Type.TOPIC, "bad/name"), false, set("retention.ms", "1")));
        step("set for the topic without a name",
            () -> alter(new ConfigResource(ConfigResource.Type.TOPIC, ""), false, set("retention.ms", "1")));
    }

    private static Object brokerSetting(ConfigResource resource, String name) throws Exception {
        ConfigEntry entry = configs(resource).get(name);
        return entry == null ? "not told" : describe(entry) + " " + synonyms(resource, name);
    }

    private static void brokerConfigs() {
        step("a static setting", () -> brokerSetting(BROKER, "offsets.topic.replication.factor"));
        step("a default", () -> brokerSetting(BROKER, "num.partitions"));
        step("a dynamic default", () -> brokerSetting(BROKER, "log.retention.bytes"));
        step("a dynamic list", () -> brokerSetting(BROKER, "log.cleanup.policy"));
        step("a dynamic choice", () -> brokerSetting(BROKER, "compression.type"));
        step("a secret", () -> describe(configs(BROKER).get("ssl.key.password")));
        step("set for a broker", () -> alter(BROKER, false, set("log.retention.bytes", "1000000000")));
        step("set for all brokers", () -> alter(ALL_BROKERS, false,
            set("log.retention.bytes", "2000000000"), set("log.segment.bytes", "20000000")));
        step("what the broker has", () -> brokerSetting(BROKER, "log.retention.bytes"));
        step("what it has from all brokers", () -> brokerSetting(BROKER, "log.segment.bytes"));
        step("what all brokers have", () -> brokerSetting(ALL_BROKERS, "log.retention.bytes"));
        step("what no broker was told", () -> brokerSetting(ALL_BROKERS, "node.id"));
        step("what a topic has from the broker", () -> synonyms(ORDERS, "retention.bytes"));
        step("delete from the broker", () -> alter(BROKER, false, change(OpType.DELETE, "log.retention.bytes", null)));
        step("what the broker has then", () -> brokerSetting(BROKER, "log.retention.bytes"));
        step("what the topic has then", () -> synonyms(ORDERS, "retention.bytes"));
        step("delete from all brokers", () -> alter(ALL_BROKERS, false,
            change(OpType.DELETE, "log.retention.bytes", null), change(OpType.DELETE, "log.segment.bytes", null)));
        step("what the broker has at last", () -> brokerSetting(BROKER, "log.retention.bytes"));
        step("try to set for a broker", () -> alter(BROKER, true, set("log.retention.bytes", "5")));
        step("set what cannot change", () -> alter(BROKER, false, set("node.id", "5")));
        step("set an own setting of a broker for all", () -> alter(ALL_BROKERS, false, set("ssl.keystore.location", "x")));
        step("set a wrong value for a broker", () -> alter(BROKER, false, set("log.retention.bytes", "abc")));
        step("set a value out of range for a broker", () -> alter(BROKER, false, set("log.segment.bytes", "1")));
        step("append to a number of a broker", () -> alter(BROKER, false, change(OpType.APPEND, "log.retention.bytes", "1")));
        step("settings of a broker that is not there", () -> configs(new ConfigResource(ConfigResource.Type.BROKER, "9")));
        step("settings of a broker with a name", () -> configs(new ConfigResource(ConfigResource.Type.BROKER, "x")));
        step("set for a broker that is not there",
            () -> alter(new ConfigResource(ConfigResource.Type.BROKER, "9"), false, set("log.retention.bytes", "5")));
        step("set for a broker with a name",
            () -> alter(new ConfigResource(ConfigResource.Type.BROKER, "x"), false, set("log.retention.bytes", "5")));
    }

    // Offsets

    private static final TopicPartition PARTITION = new TopicPartition("times", 0);

    private static Object offset(TopicPartition partition, OffsetSpec spec, IsolationLevel level) throws Exception {
        ListOffsetsOptions options = new ListOffsetsOptions(level);
        if (partition.partition() > 1) {
            options.timeoutMs(PATIENCE_MS);
        }
        ListOffsetsResultInfo found =
            admin.listOffsets(Map.of(partition, spec), options).partitionResult(partition).get();
        return "offset " + found.offset() + ", timestamp " + found.timestamp() + ", epoch " + found.leaderEpoch();
    }

    private static Object offset(OffsetSpec spec) throws Exception {
        return offset(PARTITION, spec, IsolationLevel.READ_UNCOMMITTED);
    }

    private static void offsets() throws Exception {
        create(topic("times", 2, 1).configs(Map.of("retention.ms", "-1")), false);
        step("the end of nothing", () -> offset(OffsetSpec.latest()));
        step("the start of nothing", () -> offset(OffsetSpec.earliest()));
        step("the largest timestamp of nothing", () -> offset(OffsetSpec.maxTimestamp()));
        step("a time in nothing", () -> offset(OffsetSpec.forTimestamp(0)));
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        long[] times = {1000, 3000, 2000, 3000, 1500};
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (long time : times) {
                producer.send(new ProducerRecord<>("times", 0, time, "key", "value")).get();
            }
        }
        step("latest", () -> offset(OffsetSpec.latest()));
        step("latest committed", () -> offset(PARTITION, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED));
        step("earliest", () -> offset(OffsetSpec.earliest()));
        step("largest timestamp", () -> offset(OffsetSpec.maxTimestamp()));
        step("earliest local", () -> offset(OffsetSpec.earliestLocal()));
        step("latest tiered", () -> offset(OffsetSpec.latestTiered()));
        step("earliest pending upload", () -> offset(OffsetSpec.earliestPendingUpload()));
        for (long time : new long[] {0, 1000, 1001, 2000, 2500, 3000, 3001}) {
            step("at time " + time, () -> offset(OffsetSpec.forTimestamp(time)));
        }
        step("offsets of an unknown topic",
            () -> offset(new TopicPartition("unknown", 0), OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED));
        step("offsets of an unknown partition",
            () -> offset(new TopicPartition("times", 7), OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED));
    }

    private static Object deleteBefore(TopicPartition partition, long offset) throws Exception {
        Map<TopicPartition, RecordsToDelete> wanted = Map.of(partition, RecordsToDelete.beforeOffset(offset));
        long low = admin.deleteRecords(wanted, new DeleteRecordsOptions().timeoutMs(PATIENCE_MS))
            .lowWatermarks().get(partition).get().lowWatermark();
        return "low " + low + ", " + offset(OffsetSpec.earliest());
    }

    private static void deleteRecords() throws Exception {
        step("delete records", () -> deleteBefore(PARTITION, 2));
        step("delete them again", () -> deleteBefore(PARTITION, 1));
        step("delete beyond the end", () -> deleteBefore(PARTITION, 6));
        step("delete below zero", () -> deleteBefore(PARTITION, -2));
        step("a deleted time", () -> offset(OffsetSpec.forTimestamp(0)));
        step("largest timestamp after deleting", () -> offset(OffsetSpec.maxTimestamp()));
        step("delete all records", () -> deleteBefore(PARTITION, -1));
        step("largest timestamp of what was deleted", () -> offset(OffsetSpec.maxTimestamp()));
        step("delete records of an unknown topic", () -> deleteBefore(new TopicPartition("unknown", 0), 1));
        step("delete records of a compacted topic", () -> deleteBefore(new TopicPartition("settings", 0), 0));
    }

    // Log directories and resources

    private static void logDirs() {
        step("log directories", () -> {
            Map<String, LogDirDescription> dirs = admin.describeLogDirs(List.of(0)).descriptions().get(0).get();
            Map<String, String> lines = new TreeMap<>();
            for (LogDirDescription dir : dirs.values()) {
                dir.replicaInfos().forEach((partition, info) ->
                    lines.put(partition.toString(), info.size() + " lag " + info.offsetLag() + " future " + info.isFuture()));
                if (dir.error() != null || dir.totalBytes().getAsLong() < dir.usableBytes().getAsLong()) {
                    lines.put("", "error " + dir.error());
                }
            }
            return dirs.size() + " with " + lines;
        });
    }

    private static Object resources(Set<ConfigResource.Type> types) throws Exception {
        Collection<ConfigResource> found =
            admin.listConfigResources(types, new ListConfigResourcesOptions()).all().get();
        return found.stream().map(resource -> resource.type() + " " + resource.name()).collect(Collectors.toCollection(TreeSet::new));
    }

    private static void configResources() {
        step("resources, topics", () -> resources(Set.of(ConfigResource.Type.TOPIC)));
        step("resources, brokers", () -> resources(Set.of(ConfigResource.Type.BROKER)));
        step("resources, loggers", () -> resources(Set.of(ConfigResource.Type.BROKER_LOGGER)));
        step("resources, client metrics", () -> resources(Set.of(ConfigResource.Type.CLIENT_METRICS)));
        step("resources, groups", () -> resources(Set.of(ConfigResource.Type.GROUP)));
        step("resources, all", () -> ((Collection<?>) resources(Set.of())).size() > 3);
    }

    // The end

    private static Set<String> topics() throws Exception {
        settle();
        return new TreeSet<>(admin.listTopics().names().get());
    }

    private static void deleteTopics() {
        step("delete a topic", () -> {
            admin.deleteTopics(List.of("orders")).all().get();
            return topics();
        });
        step("delete it again", () -> admin.deleteTopics(List.of("orders")).all().get());
        step("describe what was deleted", () -> described("orders"));
        step("delete by id", () -> {
            admin.deleteTopics(TopicCollection.ofTopicIds(List.of(idOf("settings")))).all().get();
            return topics();
        });
        step("delete an unknown id", () ->
            admin.deleteTopics(TopicCollection.ofTopicIds(List.of(new Uuid(12, 34)))).all().get());
        step("delete an impossible name", () -> admin.deleteTopics(List.of("bad/name")).all().get());
        step("create under a deleted name", () -> create(topic("orders", 1, 1), false));
        step("its settings are new", () -> overrides(configs(ORDERS)));
        step("delete the rest", () -> {
            List<String> rest = new ArrayList<>(admin.listTopics().names().get());
            admin.deleteTopics(rest).all().get();
            return topics();
        });
    }
}
