"""Create a topic, send to it, look at it and delete it, with kafka-python.

python examples/kafka_python_admin.py [HOST:PORT]
"""

import sys
from uuid import uuid4

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
TOPIC = f"example-{uuid4().hex[:8]}"

admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
admin.create_topics([NewTopic(name=TOPIC, num_partitions=2, replication_factor=1)])
print(f"created {TOPIC}")

producer = KafkaProducer(bootstrap_servers=BOOTSTRAP, acks="all")
sent = producer.send(TOPIC, key=b"sensor-1", value=b"21.5", partition=1).get(timeout=30)
producer.close()
print(f"sent to partition {sent.partition}, offset {sent.offset}")

consumer = KafkaConsumer(bootstrap_servers=BOOTSTRAP, auto_offset_reset="earliest", consumer_timeout_ms=30_000)
partition = TopicPartition(TOPIC, 1)
consumer.assign([partition])
message = next(consumer)
print(f"read {message.key!r}: {message.value!r}")
print(f"the next message will have offset {consumer.end_offsets([partition])[partition]}")
consumer.close()

admin.delete_topics([TOPIC])
admin.close()
print(f"deleted {TOPIC}")
