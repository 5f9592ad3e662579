"""How long the worst requests hold the loop: ``python bench/turns.py``.

A broker in this process with 1,000 topics of 10 partitions, groups and their offsets is asked what
``tools.worst_requests`` makes, one request at a time. Of each: the longest thing that the loop ran
meanwhile, in CPU of its thread (so a busy machine tells the same), what it was, and the time until
the answer was there. ``--data`` keeps the directory for a next run; ``--only FETCH`` asks one API.
"""

import argparse
import asyncio
import gc
import socket
import struct
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ottla.broker import Broker
from ottla.config.files import broker_config
from tools import worst_requests
from tools.loop_meter import LoopMeter
from tools.wire_client import WireClient

TOPICS, PARTITIONS = 1000, 10


def receive(connection: socket.socket) -> int:
    """Read one answer; return its size in bytes."""
    (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
    left = size
    while left:
        left -= len(connection.recv(min(left, 1 << 20)))
    return size


def fill(bootstrap: str) -> None:
    """Make the topics, groups with offsets in all partitions of the first, and a transaction."""
    client = WireClient(bootstrap, timeout_seconds=600)
    for first in range(0, TOPICS, 100):
        client.call(
            "create_topics",
            7,
            topics=[
                {"name": f"topic-{n}", "num_partitions": PARTITIONS, "replication_factor": 1}
                for n in range(first, first + 100)
            ],
            timeout=600_000,
        )
    client.call("find_coordinator", 4, key_type=0, coordinator_keys=["worst-1"])
    client.call("find_coordinator", 4, key_type=1, coordinator_keys=["worst"])
    for number in range(1000):
        answer = client.call(
            "offset_commit",
            9,
            group_id=f"worst-{number}",
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[
                {
                    "name": f"topic-{n}",
                    "partitions": [
                        {"partition_index": i, "committed_offset": 0, "committed_metadata": ""}
                        for i in range(PARTITIONS)
                    ],
                }
                for n in range(TOPICS if number == 1 else 1)
            ],
        )
        assert answer["topics"][0]["partitions"][0]["error_code"] == 0, answer
    client.close()


def topics_of(bootstrap: str) -> worst_requests.Topics:
    """Return the topics that are there."""
    client = WireClient(bootstrap, timeout_seconds=600)
    answer = client.call("metadata", 12, topics=None)
    found = [t for t in answer["topics"] if t["name"].startswith("topic-")]
    client.close()
    return worst_requests.Topics(
        [t["name"] for t in found], [t["topic_id"].bytes for t in found], PARTITIONS
    )


def ask(bootstrap: str, meter: LoopMeter, broker: Broker, only: str | None, small: int) -> None:
    """Send the requests and print the table."""
    topics = topics_of(bootstrap)
    host, port = bootstrap.split(":")
    print(f"{'request':48} {'KiB':>7} {'answer':>7} {'s':>6} {'turn ms':>8}  what", flush=True)
    for request in worst_requests.requests(topics, worst_requests.ELEMENTS // small):
        if only and request.api not in only.split(","):
            continue
        gc.enable()
        gc.collect()
        gc.disable()  # The client's objects are in this process, too: its passes would be ours.
        with socket.create_connection((host, int(port)), timeout=300) as connection:
            time.sleep(0.05)
            meter.reset()
            broker.stall_meter.reset()
            began = time.monotonic()
            try:
                connection.sendall(request.frame)
                size = receive(connection)
            except (OSError, struct.error) as error:
                size = -1024
                print(error)
            took = time.monotonic() - began
            time.sleep(0.12)
        mark = "*" if meter.longest_seconds > 0.05 else " "
        print(
            f"{request.api + ' ' + request.what:48} {len(request.frame) >> 10:7} {size >> 10:7} "
            f"{took:6.2f} {meter.longest_seconds * 1000:8.1f}{mark} "
            f"{broker.stall_meter.longest.what} {meter.what[:90] if mark == '*' else ''}",
            flush=True,
        )


async def main() -> None:
    """Run the broker here and the client in a thread."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data")
    parser.add_argument("--only")
    parser.add_argument("--small", type=int, default=1, help="divide the elements by this")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        data = arguments.data or stack.enter_context(tempfile.TemporaryDirectory())
        config = broker_config({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": data})
        meter = LoopMeter()
        stack.enter_context(meter.measuring())
        broker = Broker(config)
        await broker.start()
        host, port = broker.address
        bootstrap = f"{host}:{port}"

        def work() -> None:
            if not topics_of(bootstrap).names:
                fill(bootstrap)
            ask(bootstrap, meter, broker, arguments.only, arguments.small)

        await asyncio.to_thread(work)
        await broker.stop()


if __name__ == "__main__":
    asyncio.run(main())
