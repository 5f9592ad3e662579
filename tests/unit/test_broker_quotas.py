"""Quotas of a running node: loaded when there is one, in force at once and after a restart."""

import asyncio
import struct
import subprocess
import sys
import time

import pytest

import ottla.node.doors as module
from ottla.broker import Broker
from ottla.cluster.client_quotas import Alteration, ClientQuotas
from ottla.cluster.configs import Alteration as ConfigAlteration
from ottla.cluster.configs import ConfigChange, Operation, ResourceType
from ottla.config.files import broker_config
from ottla.env.clock import SystemClock
from ottla.env.executor import ThreadExecutor
from ottla.env.memory_net import MemoryNet
from ottla.env.real_disk import RealDisk
from ottla.env.rng import SeededRng
from ottla.environment import Environment
from ottla.handlers.client import Client
from ottla.pending import outcome_of
from ottla.protocol.header import encode_request_header

CLIENT = Client("10.0.0.1", 1, "10.0.0.2", 9092)
PRODUCE = memoryview(encode_request_header(0, 9, 1, "app") + bytes(100_000))
VERSIONS = struct.pack(">hhih", 18, 0, 7, -1)


@pytest.fixture
async def start(tmp_path, monkeypatch):
    """Start a node over the test's one directory; the one before is stopped. Gives its router."""
    running, routers = [], []
    router_of = module.router_of

    def remember(services):
        routers.append(router_of(services))
        return routers[-1]

    monkeypatch.setattr(module, "router_of", remember)

    async def stop():
        while running:
            await running.pop().stop()

    async def start(**options):
        await stop()
        environment = Environment(
            disk=RealDisk(),
            net=MemoryNet(),
            clock=SystemClock(),
            rng=SeededRng(1),
            executor=ThreadExecutor(1, "disk"),
            store_executor=ThreadExecutor(1, "metadata"),
        )
        given = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "data")}
        broker = Broker(broker_config(given | options), environment=environment)
        running.append(broker)
        node = await broker.start()
        data = node.data
        quotas = ClientQuotas(data.store, data.keys, data.follower, entities_max=10)

        async def alter(*parts, **values):
            (told,) = await outcome_of(
                quotas.alter([Alteration(parts, tuple(values.items()))], validate_only=False)
            )
            assert told.error is None

        return routers[-1], alter

    yield start
    await stop()


def throttled(router, client=CLIENT):
    passage = router.admit(0, PRODUCE, client, len("app"))
    return 0 if passage is None else passage.answered()


async def test_a_quota_is_in_force_at_once_and_after_a_restart_and_then_gone(start):
    router, alter = await start()
    assert router.admit is None
    await alter(("client-id", "app"), producer_byte_rate=1000.0)
    assert throttled(router) == 90_000
    router, alter = await start(**{"quota.window.num": "21"})
    assert throttled(router) == 80_000
    await alter(("user", "somebody"), producer_byte_rate=1.0)
    await alter(("client-id", "app"), producer_byte_rate=None)
    assert throttled(router) == 0
    await alter(("user", "somebody"), producer_byte_rate=None)
    assert router.admit is None


async def test_an_address_has_nothing_to_do_with_the_gate(start):
    router, alter = await start()
    await alter(("ip", "10.0.0.1"), connection_creation_rate=1.0)
    assert router.admit is None


@pytest.mark.parametrize("of", ["", "listener.name.plaintext."])
async def test_who_waits_for_a_rate_of_connections_is_let_in_by_another(of):
    """Raised again, a rate held up clients for as long as the low one would have."""
    key = f"{of}max.connection.creation.rate"
    given = {"listeners": "PLAINTEXT://127.0.0.1:0", key: "1"}
    broker = Broker(broker_config(given), memory=True)
    node = await broker.start()
    listener, address = node.doors.listener, node.doors.address
    try:
        clients = [await asyncio.open_connection(*address) for _ in range(14)]
        reader, writer = clients[-1]
        writer.write(struct.pack(">i", len(VERSIONS)) + VERSIONS)
        for _ in range(20_000):
            if listener._paced:
                break
            await asyncio.sleep(0)
        change = ConfigChange(key, Operation.SET, "1000")
        began = time.monotonic()
        altered = node.work.configs.alter(
            [ConfigAlteration(ResourceType.BROKER, "", [change], replaces=False)]
        )
        assert await outcome_of(altered) == [None]
        assert not listener._paced
        await reader.readexactly(4)
        assert time.monotonic() - began < 3, "it would have been four"
        for _, writer in clients:
            writer.close()
    finally:
        await broker.stop(grace_seconds=0)


LOADED = """
import asyncio, sys
from ottla.broker import Broker
from ottla.config.files import broker_config

async def main():
    broker = Broker(broker_config({"listeners": "PLAINTEXT://127.0.0.1:0"}), memory=True)
    await broker.start()
    await broker.stop()

asyncio.run(main())
print([name for name in sys.modules if name.startswith("ottla.") and "quota" in name])
"""


def test_a_node_without_quotas_knows_their_options_and_no_more():
    done = subprocess.run(
        [sys.executable, "-c", LOADED],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(path for path in sys.path if path)},
    )
    assert set(eval(done.stdout)) == {"ottla.config.quota", "ottla.node.quotas"}
