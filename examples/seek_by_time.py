"""Read a topic from a point in time, with confluent-kafka.

python examples/seek_by_time.py [HOST:PORT]
"""

import sys
import time
from datetime import UTC, datetime
from uuid import uuid4

from confluent_kafka import Consumer, Producer, TopicPartition

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
TOPIC = f"example-{uuid4().hex[:8]}"
NOON_MS = int(datetime(2026, 6, 1, 12, tzinfo=UTC).timestamp() * 1000)
MINUTE_MS = 60_000

producer = Producer({"bootstrap.servers": BOOTSTRAP})
for minute in range(10):
    producer.produce(TOPIC, f"12:{minute:02d}", timestamp=NOON_MS + minute * MINUTE_MS)
producer.flush()

consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": TOPIC, "enable.auto.commit": False})
wanted = TopicPartition(TOPIC, 0, NOON_MS + 7 * MINUTE_MS)
[start] = consumer.offsets_for_times([wanted], timeout=30)
print(f"the first message at 12:07 or later has offset {start.offset}")

consumer.assign([start])
values: list[str] = []
deadline = time.monotonic() + 30
while len(values) < 3 and time.monotonic() < deadline:
    message = consumer.poll(1.0)
    if message is not None and not message.error():
        values.append((message.value() or b"").decode())
consumer.close()
print(f"read {values}")
if values != ["12:07", "12:08", "12:09"]:
    sys.exit("that is not what was sent")
