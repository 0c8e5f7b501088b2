"""Send ten messages and read them back, with confluent-kafka.

python examples/produce_consume.py [HOST:PORT]
"""

import sys
import time
from uuid import uuid4

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
TOPIC = f"example-{uuid4().hex[:8]}"
COUNT = 10


def create_topic() -> None:
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    for created in admin.create_topics([NewTopic(TOPIC, num_partitions=3)]).values():
        created.result()
    print(f"created {TOPIC}")


def on_delivery(error: object, message: Message) -> None:
    if error is not None:
        raise RuntimeError(f"not delivered: {error}")
    print(f"sent {message.key()!r} to partition {message.partition()}, offset {message.offset()}")


def produce() -> None:
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True})
    for number in range(COUNT):
        producer.produce(TOPIC, f"order {number}", key=f"customer-{number % 4}", on_delivery=on_delivery)
    producer.flush()


def consume() -> None:
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": TOPIC, "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING) for partition in range(3)])
    received = 0
    deadline = time.monotonic() + 30
    while received < COUNT:
        if time.monotonic() > deadline:
            sys.exit(f"only {received} of {COUNT} messages came")
        message = consumer.poll(1.0)
        if message is None or message.error():
            continue
        received += 1
        print(f"read {message.key()!r}: {message.value()!r}")
    consumer.close()


create_topic()
produce()
consume()
print(f"all {COUNT} messages came back")
