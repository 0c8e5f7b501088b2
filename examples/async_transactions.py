"""Read, transform, write in transactions with asyncio, by aiokafka.

python examples/async_transactions.py [HOST:PORT]
"""

import asyncio
import sys
from uuid import uuid4

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
NAME = f"example-{uuid4().hex[:8]}"
INPUT, OUTPUT = f"{NAME}-in", f"{NAME}-out"
COUNT = 30


async def create_topics() -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    await admin.start()
    await admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1) for name in (INPUT, OUTPUT)])
    await admin.close()


async def fill() -> None:
    async with AIOKafkaProducer(bootstrap_servers=BOOTSTRAP) as producer:
        for number in range(COUNT):
            await producer.send_and_wait(INPUT, str(number).encode())


async def square() -> None:
    """Each round is one transaction: what was written, and how far it has read."""
    consumer = AIOKafkaConsumer(
        INPUT,
        bootstrap_servers=BOOTSTRAP,
        group_id=NAME,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    async with consumer, AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id=NAME) as producer:
        done = 0
        while done < COUNT:
            batches = await consumer.getmany(timeout_ms=1000, max_records=10)
            async with producer.transaction():
                for messages in batches.values():
                    for message in messages:
                        await producer.send(OUTPUT, str(int(message.value) ** 2).encode())
                offsets = {place: messages[-1].offset + 1 for place, messages in batches.items()}
                if offsets:
                    await producer.send_offsets_to_transaction(offsets, NAME)
            done += sum(map(len, batches.values()))
            print(f"{done} messages done")


async def read_output() -> list[int]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=BOOTSTRAP, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    async with consumer:
        partition = TopicPartition(OUTPUT, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        return [int((await consumer.getone()).value) for _ in range(COUNT)]


async def main() -> None:
    await create_topics()
    await fill()
    await square()
    squares = await read_output()
    print(f"read {len(squares)} squares, the last is {squares[-1]}")
    if squares != [number**2 for number in range(COUNT)]:
        sys.exit("that is not exactly once")


asyncio.run(asyncio.wait_for(main(), timeout=50))
