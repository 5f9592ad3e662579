"""What a record costs the client library, in CPU of the client's process: the least of some rounds.

    python bench/client_library.py [RECORDS]

The broker is a process of its own, in memory. Values of 100 bytes, 1,000 keys, six partitions.
"""

import asyncio
import resource
import sys
import time

import ottla
from ottla.testing import Broker

ROUNDS = 5
KEYS = [b"key-%d" % number for number in range(1000)]
VALUE = b"x" * 100


def cpu_seconds() -> float:
    """Return the CPU that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def blocking(bootstrap: str, count: int) -> tuple[float, float]:
    """Produce; return CPU and wall seconds, as those below do."""
    with ottla.Client(bootstrap) as client, client.producer() as producer:
        producer.produce("t", VALUE)
        wall, used, send = time.perf_counter(), cpu_seconds(), producer.send
        for number in range(count):
            send("t", VALUE, key=KEYS[number % 1000])
        producer.flush()
        return cpu_seconds() - used, time.perf_counter() - wall


async def with_asyncio(bootstrap: str, count: int) -> tuple[float, float]:
    """Produce, on asyncio."""
    async with ottla.AsyncClient(bootstrap) as client, client.producer() as producer:
        await producer.produce("t", VALUE)
        wall, used, send = time.perf_counter(), cpu_seconds(), producer.send
        for number in range(count):
            await send("t", VALUE, key=KEYS[number % 1000])
        await producer.flush()
        return cpu_seconds() - used, time.perf_counter() - wall


def reading(bootstrap: str, count: int) -> tuple[float, float]:
    """Consume what was produced."""
    with ottla.Client(bootstrap) as client, client.consumer() as consumer:
        consumer.assign({ottla.TopicPartition("t", each): "earliest" for each in range(6)})
        wall, used = time.perf_counter(), cpu_seconds()
        for number, _ in enumerate(consumer, 1):
            if number == count:
                return cpu_seconds() - used, time.perf_counter() - wall
    raise AssertionError("the iteration does not end")


def main() -> None:
    """Print the least of some rounds."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    with Broker(process=True) as broker:
        broker.create_topic("t", partitions=6)
        for name, run in (
            ("produce, blocking", lambda: blocking(broker.bootstrap, count)),
            ("produce, asyncio", lambda: asyncio.run(with_asyncio(broker.bootstrap, count))),
            ("consume, blocking", lambda: reading(broker.bootstrap, count)),
        ):
            used, wall = (min(each) for each in zip(*(run() for _ in range(ROUNDS)), strict=True))
            print(
                f"{name}: {used / count * 1e6:.2f} us of CPU a record, "
                f"{count / used:,.0f} records/s of a core; wall {count / wall:,.0f} records/s"
            )


if __name__ == "__main__":
    main()
