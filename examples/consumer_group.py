"""Two members of a consumer group share a topic, and the group goes on where it was, with confluent-kafka.

python examples/consumer_group.py [HOST:PORT]
"""

import sys
import time
from uuid import uuid4

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
TOPIC = GROUP = f"example-{uuid4().hex[:8]}"
PARTITIONS = 4
COUNT = 100


def produce(first: int, last: int) -> None:
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    for number in range(first, last):
        producer.produce(TOPIC, str(number), partition=number % PARTITIONS)
    producer.flush()


def member(name: str) -> Consumer:
    """A member of the new protocol; without group.protocol it would be one of the classic one."""
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "client.id": name,
            "group.id": GROUP,
            "group.protocol": "consumer",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([TOPIC])
    return consumer


def read(members: dict[str, Consumer], wanted: int) -> dict[str, list[int]]:
    """Reads with all members in turn until all messages are there, and commits each before the next."""
    seen: dict[str, list[int]] = {name: [] for name in members}
    deadline = time.monotonic() + 45
    while sum(map(len, seen.values())) < wanted:
        if time.monotonic() > deadline:
            sys.exit(f"only {seen} of {wanted} messages came")
        for name, consumer in members.items():
            message = consumer.poll(0.1)
            if message is None or message.error():
                continue
            seen[name].append(int(message.value() or b""))
            consumer.commit(message, asynchronous=False)
    return seen


admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
for created in admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS)]).values():
    created.result()

both = {"left": member("left"), "right": member("right")}
deadline = time.monotonic() + 45
while not all(consumer.assignment() for consumer in both.values()):
    if time.monotonic() > deadline:
        sys.exit("the members were given no partitions")
    for consumer in both.values():
        consumer.poll(0.1)
produce(0, COUNT)
shares = read(both, COUNT)
for name, numbers in shares.items():
    print(f"{name} has read {len(numbers)} messages from {len({n % PARTITIONS for n in numbers})} partitions")
for consumer in both.values():
    consumer.close()

produce(COUNT, COUNT + 10)
alone = {"alone": member("alone")}
rest = read(alone, 10)["alone"]
alone["alone"].close()
print(f"the next member of the group begins where it was: {sorted(rest)}")

asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])[GROUP].result()
committed = {place.partition: place.offset for place in asked.topic_partitions}
print(f"committed: {dict(sorted(committed.items()))}")
if sorted(shares["left"] + shares["right"]) != list(range(COUNT)) or sum(committed.values()) != COUNT + 10:
    sys.exit("messages were read twice or not at all")
