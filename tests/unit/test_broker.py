"""The node put together, on doubles of the outside."""

import asyncio

import pytest

from ottla.broker import Broker, Environment
from ottla.cluster.membership import Membership
from ottla.config.files import broker_config
from ottla.env.clock import SystemClock
from ottla.env.executor import ThreadExecutor
from ottla.env.memory_disk import MemoryDisk
from ottla.env.memory_net import MemoryNet
from ottla.env.rng import SeededRng
from ottla.protocol.apis import ApiKey
from ottla.protocol.header import encode_request_header
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse

VERSION = 9
METADATA = encode_request_header(ApiKey.METADATA, VERSION, 1, "me") + MetadataRequest(
    topics=[]
).encode(VERSION)


class Client(asyncio.Protocol):
    """Sends one Metadata request as soon as it is connected, and keeps the answer."""

    def __init__(self):
        self.received = b""
        self.answer = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        transport.write(len(METADATA).to_bytes(4, "big") + METADATA)

    def data_received(self, data):
        self.received += data
        if len(self.received) >= 4 + int.from_bytes(self.received[:4], "big"):
            self.answer.set_result(MetadataResponse.decode(self.received[9:], VERSION))


class EagerNet(MemoryNet):
    """A net on which a client connects the moment somebody listens."""

    async def listen(self, factory, **where):
        listening = await super().listen(factory, **where)
        host, port = listening.address
        _, self.client = await self.connect(Client, host=host, port=port)
        return listening


@pytest.fixture
def environment():
    return Environment(
        disk=MemoryDisk(),
        net=EagerNet(),
        clock=SystemClock(),
        rng=SeededRng(1),
        executor=ThreadExecutor(1, "disk"),
        store_executor=ThreadExecutor(1, "metadata"),
    )


async def test_the_first_client_does_not_find_a_cluster_without_brokers(environment, monkeypatch):
    join = Membership.join

    async def join_slowly(self, broker):
        for _ in range(100):
            await asyncio.sleep(0)
        assert broker.port != 0, "others are told where this node really listens"
        return await join(self, broker)

    monkeypatch.setattr(Membership, "join", join_slowly)
    broker = Broker(
        broker_config({"listeners": "PLAINTEXT://127.0.0.1:0"}),
        memory=True,
        environment=environment,
    )
    await broker.start()
    answer = await asyncio.wait_for(environment.net.client.answer, 5)
    await broker.stop()
    assert [told.node_id for told in answer.brokers] == [1]
    assert answer.controller_id == 1
