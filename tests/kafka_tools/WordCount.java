import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * A Kafka Streams application that counts words exactly once.
 *
 * Every line of the topic `lines` goes to `copies` as it is. Its words (all but the first, which is the number of the line) go
 * through a repartition topic to a counter with a changelog, and every new count of a word to `counts`: so the counts of a word
 * are 1, 2, 3 and so on if and only if each of its occurrences was handled exactly once.
 *
 * Arguments: the broker's address, a folder for its state, further settings as name=value. It prints its states, and runs until
 * it is killed.
 */
public class WordCount {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("state.dir", arguments[1]);
        settings.put("application.id", "word-count");
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("statestore.cache.max.bytes", "0");
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        for (String setting : Arrays.copyOfRange(arguments, 2, arguments.length)) {
            settings.put(setting.substring(0, setting.indexOf('=')), setting.substring(setting.indexOf('=') + 1));
        }
        KafkaStreams streams = new KafkaStreams(topology().build(settings), settings);
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        streams.setUncaughtExceptionHandler(problem -> {
            System.out.println("problem " + problem);
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.start();
    }

    private static StreamsBuilder topology() {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream("lines", Consumed.with(Serdes.String(), Serdes.String()));
        lines.to("copies");
        lines.flatMapValues(line -> Arrays.asList(line.split(" ")).subList(1, line.split(" ").length))
            .groupBy((key, word) -> word, Grouped.with("by-word", Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counter"))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to("counts", Produced.with(Serdes.String(), Serdes.String()));
        return builder;
    }
}
