"""What an authorizer and a quota cost a request. ``python bench/gate.py [--rounds N]``.

Two nodes in this process, one of them with an authorizer, serve the same frames from their routers,
without a socket: a Produce of one record (acks=1), and a Fetch of one record, in a session and
without one. The ways are interleaved in rounds of many short samples, and each figure is the least
CPU of a sample of the loop's thread, in microseconds a request: other work on the machine makes
samples dearer, never cheaper. A sample is shorter than the scheduler's slices, so some are never
interrupted, also at load: runs of five rounds agree within 0.3 us. The ways: neither; an authorizer
with 100 ACLs, of which some allow; quotas of bytes that are not reached; both.
"""

import argparse
import asyncio
import gc
import logging
import struct
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ottla.broker import Broker
from ottla.config.files import broker_config
from ottla.handlers.client import Client
from ottla.handlers.router import Router
from ottla.handlers.routes import router_of
from ottla.handlers.services import Services
from ottla.ids import Principal
from ottla.node import doors
from tools.wire_client import WireClient, batch

TOPIC = "measured"
WAYS = ("neither", "quota", "authorizer", "both")
REQUESTS = 25
"""Of one sample: half a millisecond."""
SAMPLES = 160
"""Of one kind and way, in each round."""
CLIENT = Client("127.0.0.1", 1, "127.0.0.1", 2, Principal("User", "ann"))
OPEN = {"listeners": "PLAINTEXT://127.0.0.1:0"}
CLOSED = {
    **OPEN,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
ACL = {"resource_type": 2, "resource_pattern_type": 3, "host": "*", "permission_type": 3}


class Node:
    """A running node, whose router is asked directly."""

    def __init__(self, directory: Path, options: dict[str, str]) -> None:
        self.has_acls = "authorizer.class.name" in options
        self._broker = Broker(broker_config({**options, "log.dirs": str(directory)}))
        self.router: Router
        self.client = CLIENT

    async def __aenter__(self) -> Self:
        made: list[Router] = []

        def remember(services: Services) -> Router:
            made.append(router_of(services))
            return made[0]

        with patch.object(doors, "router_of", remember):
            await self._broker.start()
        self.router = made[0]
        host, port = self._broker.address
        self._address = f"{host}:{port}"
        await asyncio.to_thread(self._prepare)
        self.client = self.router.known(CLIENT)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._broker.stop()

    def wire(self) -> WireClient:
        """Return a new connection to it."""
        return WireClient(self._address, client_id="measured")

    def _prepare(self) -> None:
        with self.wire() as wire:
            self.topic_id: uuid.UUID = wire.create_topic(TOPIC)
            if self.has_acls:
                allowed = [
                    {**ACL, "resource_name": TOPIC, "principal": "User:ann", "operation": one}
                    for one in (3, 4)
                ]
                others = [
                    {**ACL, "resource_name": f"t{n}", "principal": "User:bob", "operation": 3}
                    for n in range(98)
                ]
                wire.call("create_acls", 3, creations=allowed + others)
            wire.call("produce", 9, **{**_produced(TOPIC), "acks": -1})

    def set_quotas(self, bound: float | None) -> None:
        """Set or remove quotas of both kinds."""
        ops = [
            {"key": key, "value": bound or 0.0, "remove": bound is None}
            for key in ("producer_byte_rate", "consumer_byte_rate")
        ]
        entity = [{"entity_type": "user", "entity_name": "ann"}]
        with self.wire() as wire:
            told = wire.call(
                "alter_client_quotas",
                1,
                entries=[{"entity": entity, "ops": ops}],
                validate_only=False,
            )
        assert told["entries"][0]["error_code"] == 0, told


def _produced(topic: str) -> dict[str, Any]:
    part = {"index": 0, "records": batch([b"v" * 100])}
    return {
        "transactional_id": None,
        "acks": 1,
        "timeout": 30_000,
        "topic_data": [{"name": topic, "partition_data": [part]}],
    }


def _fetched(node: Node, version: int) -> dict[str, Any]:
    topic = {"topic": TOPIC} if version < 13 else {"topic_id": node.topic_id}
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100}
    fields: dict[str, Any] = {} if version >= 15 else {"replica_id": -1}
    return fields | {
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1000,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{**topic, "partitions": [part]}],
        "forgotten_topics_data": [],
    }


def _bytes_of(answer: object) -> bytes:
    assert isinstance(answer, list), answer
    return b"".join(one.read() if hasattr(one, "read") else bytes(one) for one in answer)


def produce(node: Node, wire: WireClient) -> Callable[[], None]:
    """Return what asks once for a Produce."""
    frame = memoryview(bytearray(wire.encode("produce", 9, **_produced(TOPIC))))
    dispatch, client = node.router.dispatch, node.client

    def ask() -> None:
        assert dispatch(frame, client) is not None

    return ask


def fetch(node: Node, wire: WireClient) -> Callable[[], None]:
    """Return what asks once for a Fetch without a session."""
    frame = memoryview(bytearray(wire.encode("fetch", 12, **_fetched(node, 12))))
    dispatch, client = node.router.dispatch, node.client
    assert len(_bytes_of(dispatch(frame, client))) > 150, "it reads the record"

    def ask() -> None:
        assert dispatch(frame, client) is not None

    return ask


def fetch_in_session(node: Node, wire: WireClient) -> Callable[[], None]:
    """Return what asks once for the next Fetch of a session."""
    dispatch, client = node.router.dispatch, node.client
    fields = _fetched(node, 16)
    begun = wire.encode("fetch", 16, **{**fields, "session_epoch": 0})
    told = wire.decode("fetch", 16, _bytes_of(dispatch(memoryview(bytearray(begun)), client))[4:])
    assert told["session_id"] > 0, told
    going = {**fields, "session_id": told["session_id"], "session_epoch": 77, "topics": []}
    frame = memoryview(bytearray(wire.encode("fetch", 16, **going)))
    position = bytes(frame).index(struct.pack(">ii", told["session_id"], 77)) + 4
    epoch = 0

    def ask() -> None:
        nonlocal epoch
        epoch += 1
        struct.pack_into(">i", frame, position, epoch)
        assert dispatch(frame, client) is not None

    return ask


KINDS: dict[str, Callable[[Node, WireClient], Callable[[], None]]] = {
    "Produce": produce,
    "Fetch": fetch,
    "Fetch in a session": fetch_in_session,
}


async def measure(rounds: int) -> dict[tuple[str, str], float]:
    """Return the least CPU of a request in microseconds, by kind and way."""
    least: dict[tuple[str, str], float] = {}
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        nodes = [
            await stack.enter_async_context(Node(directory / str(index), options))
            for index, options in enumerate((OPEN, CLOSED))
        ]
        wires = [node.wire() for node in nodes]
        asks = {
            (kind, node.has_acls): make(node, wire)
            for kind, make in KINDS.items()
            for node, wire in zip(nodes, wires, strict=True)
        }
        gc.collect()
        gc.freeze()
        for _ in range(rounds):
            for has_quota in (False, True):
                for node in nodes:
                    await asyncio.to_thread(node.set_quotas, 1e12 if has_quota else None)
                for (kind, has_acls), ask in asks.items():
                    way = WAYS[has_quota + 2 * has_acls]
                    for _ in range(SAMPLES):
                        begin = time.thread_time()
                        for _ in range(REQUESTS):
                            ask()
                        spent = 1e6 * (time.thread_time() - begin) / REQUESTS
                        least[kind, way] = min(least.get((kind, way), spent), spent)
                        await asyncio.sleep(0)
        for wire in wires:
            wire.close()
    return least


logging.getLogger("ottla").setLevel(logging.ERROR)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    least = asyncio.run(measure(options.rounds))
    print(f"{'us of CPU a request':24}" + "".join(f"{way:>12}" for way in WAYS) + f"{'more':>8}")
    for kind in KINDS:
        figures = [least[kind, way] for way in WAYS]
        cells = "".join(f"{one:12.2f}" for one in figures)
        print(f"{kind:24}{cells}{figures[-1] - figures[0]:+8.2f}")


if __name__ == "__main__":
    main()
