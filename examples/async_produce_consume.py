"""Send and read messages with asyncio, by aiokafka.

python examples/async_produce_consume.py [HOST:PORT]
"""

import asyncio
import sys
from uuid import uuid4

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
TOPIC = f"example-{uuid4().hex[:8]}"
COUNT = 100


async def produce() -> None:
    async with AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, acks="all", enable_idempotence=True) as producer:
        sent = [await producer.send(TOPIC, f"reading {number}".encode()) for number in range(COUNT)]
        for delivery in sent:
            await delivery
    print(f"sent {COUNT} messages to {TOPIC}")


async def consume() -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=BOOTSTRAP, auto_offset_reset="earliest")
    await consumer.start()
    try:
        partition = TopicPartition(TOPIC, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        values = [(await consumer.getone()).value for _ in range(COUNT)]
    finally:
        await consumer.stop()
    print(f"read {len(values)} messages, from {values[0]!r} to {values[-1]!r}")


async def main() -> None:
    await produce()
    await asyncio.wait_for(consume(), timeout=30)


asyncio.run(main())
