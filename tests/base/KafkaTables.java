// Prints Apache Kafka's tables of errors and settings, for test_kafka_tables.py to compare with ours.

import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

public class KafkaTables {
    public static void main(String[] arguments) throws Exception {
        for (Errors error : Errors.values()) {
            print("error", error.name(), error.code(), error.exception() instanceof RetriableException);
        }
        settings("broker", AbstractKafkaConfig.CONFIG_DEF);
        var field = LogConfig.class.getDeclaredField("CONFIG");
        field.setAccessible(true);
        settings("topic", (ConfigDef) field.get(null));
        DynamicBrokerConfig.dynamicConfigUpdateModes().forEach((name, mode) -> print("dynamic", name, mode));
        ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.forEach((name, synonyms) ->
            print("synonyms", name, String.join(",", synonyms.stream().map(synonym -> synonym.name()).toList())));
    }

    private static void settings(String table, ConfigDef definition) {
        for (Map.Entry<String, ConfigDef.ConfigKey> entry : new TreeMap<>(definition.configKeys()).entrySet()) {
            ConfigDef.ConfigKey key = entry.getValue();
            String text = key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : "(required)";
            print(table, key.name, key.type, Objects.requireNonNullElse(text, "(null)"));
        }
    }

    private static void print(Object... cells) {
        StringBuilder line = new StringBuilder();
        for (Object cell : cells) {
            line.append(line.isEmpty() ? "" : "\t").append(cell);
        }
        System.out.println(line);
    }
}
