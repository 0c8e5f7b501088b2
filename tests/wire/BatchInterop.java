// Rewrites record batches with Apache Kafka's own code: reads each file <codec>.in of a folder, checks it as the broker
// does, and writes its records again, built and compressed by Kafka, as <codec>.out.

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.SimpleRecord;

public class BatchInterop {
    public static void main(String[] args) throws Exception {
        Path folder = Path.of(args[0]);
        for (String name : args[1].split(",")) {
            MemoryRecords in = MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(folder.resolve(name + ".in"))));
            MutableRecordBatch batch = in.batches().iterator().next();
            batch.ensureValid();
            MemoryRecords out = batch.isControlBatch() ? marker(batch) : rewritten(batch);
            ByteBuffer buffer = out.buffer();
            byte[] bytes = new byte[buffer.remaining()];
            buffer.get(bytes);
            Files.write(folder.resolve(name + ".out"), bytes);
        }
    }

    static MemoryRecords rewritten(MutableRecordBatch batch) {
        List<SimpleRecord> records = new ArrayList<>();
        for (Record record : batch) {
            record.ensureValid();
            records.add(new SimpleRecord(record));
        }
        Compression compression = Compression.of(batch.compressionType()).build();
        return MemoryRecords.withRecords(batch.baseOffset(), compression, records.toArray(new SimpleRecord[0]));
    }

    static MemoryRecords marker(MutableRecordBatch batch) {
        Record record = batch.iterator().next();
        EndTransactionMarker marker = EndTransactionMarker.deserialize(record);
        return MemoryRecords.withEndTransactionMarker(batch.baseOffset(), record.timestamp(), batch.partitionLeaderEpoch(),
            batch.producerId(), batch.producerEpoch(), marker);
    }
}
