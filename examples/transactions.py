"""Messages in several partitions that appear together or not at all, with confluent-kafka.

python examples/transactions.py [HOST:PORT]
"""

import sys
import time
from uuid import uuid4

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
TOPIC = f"example-{uuid4().hex[:8]}"
PARTITIONS = 2


def transfer(producer: Producer, amount: int) -> None:
    """Money leaves one account and reaches the other, in two partitions; a transfer over 100 is not allowed."""
    producer.begin_transaction()
    producer.produce(TOPIC, f"alice {-amount}", partition=0)
    producer.produce(TOPIC, f"bob {amount:+}", partition=1)
    producer.flush()
    if amount > 100:
        producer.abort_transaction()
        print(f"aborted the transfer of {amount}")
    else:
        producer.commit_transaction()
        print(f"committed the transfer of {amount}")


def read(isolation: str, wanted: int) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": TOPIC,
            "enable.auto.commit": False,
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    values: list[str] = []
    deadline = time.monotonic() + 30
    while len(values) < wanted and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and not message.error():
            values.append((message.value() or b"").decode())
    consumer.close()
    return sorted(values)


admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
for created in admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS)]).values():
    created.result()

# The id names this producer over all its lives: a second one with the same id takes its place and aborts what it left.
producer = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": TOPIC})
producer.init_transactions()
for amount in (30, 500, 70):
    transfer(producer, amount)

everything, committed = read("read_uncommitted", 6), read("read_committed", 4)
print(f"read_uncommitted: {everything}")
print(f"read_committed:   {committed}")
if committed != ["alice -30", "alice -70", "bob +30", "bob +70"]:
    sys.exit("that is not what was committed")
