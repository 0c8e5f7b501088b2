import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;

import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.Readable;

/** Decodes each line "class version hex" of its input with Apache Kafka's own code and writes what it encodes to. */
public class MessageEcho {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split(" ", -1);
            System.out.println(echo(Class.forName(parts[0]), Short.parseShort(parts[1]), parts[2]));
        }
    }

    private static String echo(Class<?> type, short version, String hex) {
        try {
            ByteBuffer data = ByteBuffer.wrap(HexFormat.of().parseHex(hex));
            Message message = (Message) type.getConstructor(Readable.class, short.class)
                .newInstance(new ByteBufferAccessor(data), version);
            if (data.hasRemaining()) {
                return data.remaining() + " bytes are left over";
            }
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer out = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(out), cache, version);
            return HexFormat.of().formatHex(out.array());
        } catch (ReflectiveOperationException | RuntimeException error) {
            return error + " because of " + error.getCause();
        }
    }
}
