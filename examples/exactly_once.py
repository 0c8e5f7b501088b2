"""Read, transform, write: every input message has exactly one output message, also when the program dies in between.

The offsets of what was read are committed in the same transaction as what was written. A program that dies leaves both
undone, and the next one begins with the same input.

python examples/exactly_once.py [HOST:PORT]
"""

import sys
import time
from uuid import uuid4

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
NAME = f"example-{uuid4().hex[:8]}"
INPUT, OUTPUT = f"{NAME}-in", f"{NAME}-out"
COUNT = 40
BATCH = 10


class Died(Exception):
    """What kill -9 is to a real program."""


class Worker:
    """One life of the program."""

    def __init__(self) -> None:
        self.producer = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": f"{NAME}-worker"})
        self.producer.init_transactions()  # ends what an earlier life has left open, and lets it write no more
        self.consumer = Consumer(
            {
                "bootstrap.servers": BOOTSTRAP,
                "group.id": NAME,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self.consumer.subscribe([INPUT])

    def run(self, batches: int, dies_in_the_last: bool = False) -> None:
        for number in range(batches):
            messages = self._next_batch()
            self.producer.begin_transaction()
            for message in messages:
                self.producer.produce(OUTPUT, (message.value() or b"").upper())
            self.producer.flush()
            if dies_in_the_last and number == batches - 1:
                raise Died
            self.producer.send_offsets_to_transaction(
                self.consumer.position(self.consumer.assignment()), self.consumer.consumer_group_metadata()
            )
            self.producer.commit_transaction()
            print(f"committed {len(messages)} messages and where they were read")
        self.consumer.close()

    def _next_batch(self) -> list[Message]:
        messages: list[Message] = []
        deadline = time.monotonic() + 60
        while len(messages) < BATCH:
            if time.monotonic() > deadline:
                sys.exit("the input has not come")
            messages += [each for each in self.consumer.consume(BATCH - len(messages), 1.0) if not each.error()]
        return messages


def read_output() -> list[str]:
    consumer = Consumer(
        {"bootstrap.servers": BOOTSTRAP, "group.id": f"{NAME}-check", "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition(OUTPUT, 0, OFFSET_BEGINNING)])
    values: list[str] = []
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < (2 if len(values) >= COUNT else 30):
        message = consumer.poll(0.5)
        if message is not None and not message.error():
            values.append((message.value() or b"").decode())
            quiet_since = time.monotonic()
    consumer.close()
    return values


admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
for created in admin.create_topics([NewTopic(INPUT, num_partitions=1), NewTopic(OUTPUT, num_partitions=1)]).values():
    created.result()
producer = Producer({"bootstrap.servers": BOOTSTRAP})
for number in range(COUNT):
    producer.produce(INPUT, f"message {number}")
producer.flush()

first = Worker()
try:
    first.run(batches=2, dies_in_the_last=True)
except Died:
    print(f"died with {BATCH} messages written and not committed")
first.consumer.close()  # a real death is noticed when the session of the member has ended

second = Worker()
second.run(batches=3)
try:
    first.producer.commit_transaction()
    sys.exit("the first one should not be able to commit")
except KafkaException as refused:
    print(f"the first one comes back and is refused: {refused.args[0].str()}")

values = read_output()
print(f"{len(values)} messages in the output, {len(set(values))} of them different")
if values != [f"MESSAGE {number}" for number in range(COUNT)]:
    sys.exit("that is not exactly once")
