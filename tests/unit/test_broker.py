"""The node put together, on doubles of the outside."""

import asyncio

import pytest

from ottla.broker import Broker
from ottla.cluster.membership import Membership
from ottla.cluster.topics import NewTopic
from ottla.config.files import broker_config
from ottla.env.clock import SystemClock
from ottla.env.executor import ThreadExecutor
from ottla.env.memory_disk import MemoryDisk
from ottla.env.memory_net import MemoryNet
from ottla.env.real_disk import RealDisk
from ottla.env.real_net import AsyncioNet
from ottla.env.rng import SeededRng
from ottla.environment import Environment
from ottla.errors import ErrorCode, InvariantBroken
from ottla.ids import TopicPartition
from ottla.log.directories.directory import LogDirectoryUnusable
from ottla.metadata.store import Put, Unavailable
from ottla.node.work import measure_log_dirs
from ottla.protocol.apis import ApiKey
from ottla.protocol.header import encode_request_header
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.records.builder import build_batch
from ottla.records.record import Record

VERSION = 9
METADATA = encode_request_header(ApiKey.METADATA, VERSION, 1, "me") + MetadataRequest(
    topics=None
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


def make_environment(disk=None, **fields):
    return Environment(
        disk=disk or MemoryDisk(),
        net=EagerNet(),
        clock=SystemClock(),
        rng=SeededRng(1),
        executor=ThreadExecutor(1, "disk"),
        store_executor=ThreadExecutor(1, "metadata"),
        **fields,
    )


def make_broker(environment, **given):
    config = broker_config(
        {"listeners": "PLAINTEXT://127.0.0.1:0"}
        | {key.replace("_", "."): value for key, value in given.items()}
    )
    is_memory = isinstance(environment.disk, MemoryDisk)
    return Broker(config, memory=is_memory, environment=environment)


async def test_the_first_client_does_not_find_a_cluster_without_brokers(monkeypatch):
    environment = make_environment()
    join = Membership.join

    async def join_slowly(self):
        for _ in range(100):
            await asyncio.sleep(0)
        assert self._broker.port != 0, "others are told where this node really listens"
        return await join(self)

    monkeypatch.setattr(Membership, "join", join_slowly)
    broker = make_broker(environment)
    await broker.start()
    answer = await asyncio.wait_for(environment.net.client.answer, 5)
    await broker.stop()
    assert [told.node_id for told in answer.brokers] == [1]
    assert answer.controller_id == 1


@pytest.mark.parametrize(
    ("given", "open_files_max", "said"),
    [
        ({}, 1024, ["INFO"]),
        ({"max_connections": "2000"}, 1024, ["WARNING"]),
        ({"max_connections": "960"}, 1024, []),
        ({}, None, []),
    ],
)
async def test_fewer_connections_than_wanted_are_told_once(given, open_files_max, said, caplog):
    caplog.set_level("INFO", "ottla")
    broker = make_broker(make_environment(open_files_max=open_files_max), **given)
    await broker.start()
    await broker.stop()
    lines = [line for line in caplog.records if "max.connections" in line.getMessage()]
    assert [line.levelname for line in lines] == said
    assert all("960 here" in line.getMessage() for line in lines)


async def test_one_unreadable_partition_does_not_take_the_node_with_it(tmp_path):
    given = {"log_dirs": str(tmp_path / "data")}
    broker = make_broker(make_environment(RealDisk()), **given)
    await broker.start()
    created = asyncio.get_running_loop().create_future()
    broker.node.work.controller.create_topics([NewTopic("t", 2)]).on_done(created.set_result)
    await created
    batch = memoryview(bytearray(build_batch([Record(value=b"v")])))
    broker.node.work.replica_manager.appends.many(
        [(TopicPartition("t", 0), batch)], acks=-1, timeout_ms=1000
    )
    await broker.stop()
    (log,) = (tmp_path / "data" / "t-0").glob("*.log")
    log.write_bytes(log.read_bytes()[:-1])

    environment = make_environment(RealDisk())
    broker = make_broker(environment, **given)
    await broker.start()
    manager = broker.node.work.replica_manager
    answer = await asyncio.wait_for(environment.net.client.answer, 5)
    assert manager.offline(TopicPartition("t", 0)) is not None
    assert manager.leader_of(TopicPartition("t", 1)).log_start_offset == 0
    await broker.stop()
    (topic,) = answer.topics
    told = {part.partition_index: part for part in topic.partitions}
    assert (told[0].leader_id, told[1].leader_id) == (-1, 1)
    assert told[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert (told[0].offline_replicas, told[1].offline_replicas) == ([1], [])


async def started_on_two_disks(tmp_path):
    given = {"log_dirs": f"{tmp_path / 'one'},{tmp_path / 'two'}"}
    broker = make_broker(make_environment(RealDisk()), **given)
    await broker.start()
    return broker


async def test_a_lost_disk_stops_the_node_only_with_the_metadata(tmp_path):
    broker = await started_on_two_disks(tmp_path)
    manager = broker.node.data.logs
    manager.fail_directory(str(tmp_path / "two"), OSError(5, "Input/output error"))
    assert not broker.failed.is_set()
    told = asyncio.get_running_loop().create_future()
    measure_log_dirs(broker.node.data.logs, broker._env).on_done(told.set_result)
    measured = (await told).value
    assert [found.error is None for found in measured] == [True, False]
    manager.fail_directory(str(tmp_path / "one"), OSError(5, "Input/output error"))
    assert broker.failed.is_set()
    assert "the cluster's metadata" in str(broker.failure)
    await broker.stop()


async def test_a_broken_metadata_store_ends_the_node_with_its_reason(tmp_path, caplog):
    broker = await started_on_two_disks(tmp_path)
    store = broker.node.data.store
    store._file._break("disk I/O error while committing")
    with pytest.raises(Unavailable):
        await store.commit([], [Put("a", b"")])
    assert broker.failed.is_set()
    assert "metadata.sqlite: the metadata is out of use (disk I/O error" in str(broker.failure)
    assert "this node cannot go on" in caplog.text
    await broker.stop()
    assert (tmp_path / "two" / ".kafka_cleanshutdown").exists(), "the logs were closed all the same"


async def test_a_node_that_follows_its_metadata_no_more_ends_with_its_reason(caplog):
    """It served on, and made and deleted no topic that the store told of."""
    broker = make_broker(make_environment())
    await broker.start()

    def fault(image, delta):
        raise RuntimeError("a listener's")

    broker.node.data.follower.add_listener(fault)
    created = asyncio.get_running_loop().create_future()
    broker.node.work.controller.create_topics([NewTopic("t", 1)]).on_done(created.set_result)
    await created
    assert broker.failed.is_set()
    assert "could not be followed" in str(broker.failure)
    assert "this node cannot go on" in caplog.text
    await asyncio.wait_for(broker.stop(), 10)


async def test_log_dirs_in_another_order_do_not_begin_without_the_metadata(tmp_path):
    """The topics were taken in again without their configs: another retention took records."""
    await (await started_on_two_disks(tmp_path)).stop()
    one, two = tmp_path / "one", tmp_path / "two"
    broker = make_broker(make_environment(RealDisk()), log_dirs=f"{two},{one}")
    with pytest.raises(LogDirectoryUnusable, match=f"name {one} first in log.dirs"):
        await broker.start()
    assert not (two / "metadata.sqlite").exists()
    three = make_broker(make_environment(RealDisk()), log_dirs=f"{one},{tmp_path / 'three'},{two}")
    await three.start()
    await three.stop()


async def test_a_start_without_the_metadata_is_refused_by_name(tmp_path):
    broker = await started_on_two_disks(tmp_path)
    await broker.stop()
    (tmp_path / "one" / "meta.properties").rename(tmp_path / "one" / "aside")
    (tmp_path / "one" / "meta.properties").mkdir()
    with pytest.raises(LogDirectoryUnusable, match=r"one: its meta\.properties cannot be read"):
        await started_on_two_disks(tmp_path)


@pytest.mark.parametrize("turns", [1, 3, 5, 8, 13])
async def test_a_stop_whose_caller_is_cancelled_comes_to_its_end(tmp_path, turns):
    broker = await started_on_two_disks(tmp_path)
    stopping = asyncio.create_task(broker.stop())
    for _ in range(turns):
        await asyncio.sleep(0)
    stopping.cancel()
    await asyncio.wait([stopping])
    await broker.stop()
    assert (tmp_path / "two" / ".kafka_cleanshutdown").exists()
    await (await started_on_two_disks(tmp_path)).stop()


async def test_two_stops_at_once_are_one(tmp_path):
    broker = await started_on_two_disks(tmp_path)
    await asyncio.gather(broker.stop(), broker.stop())
    assert (tmp_path / "two" / ".kafka_cleanshutdown").exists()
    await broker.stop()
    with pytest.raises(InvariantBroken):
        await broker.start()
    await (await started_on_two_disks(tmp_path)).stop()


async def test_a_start_that_is_cancelled_lets_go_of_everything(tmp_path):
    for turns in (1, 2, 3, 5, 8, 13, 21, 34):
        given = {"log_dirs": f"{tmp_path / 'one'},{tmp_path / 'two'}"}
        broker = make_broker(make_environment(RealDisk()), **given)
        starting = asyncio.create_task(broker.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        if not starting.cancelled():
            await broker.stop()
            break
        await (await started_on_two_disks(tmp_path)).stop()


async def test_a_start_that_finds_its_port_in_use_leaves_no_coordinator_behind(tmp_path):
    """Its timers would go on, over logs that are closed, as long as the process lives."""
    broker = await started_on_two_disks(tmp_path)
    created = asyncio.get_running_loop().create_future()
    topic = NewTopic("__consumer_offsets", 2)
    broker.node.work.controller.create_topics([topic]).on_done(created.set_result)
    await created
    await broker.stop()

    environment = make_environment(RealDisk())._replace(net=AsyncioNet())
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as taken:
        port = taken.sockets[0].getsockname()[1]
        given = {"log_dirs": f"{tmp_path / 'one'},{tmp_path / 'two'}"}
        second = make_broker(environment, listeners=f"PLAINTEXT://127.0.0.1:{port}", **given)
        with pytest.raises(OSError, match="in use"):
            await second.start()
    assert not list(second._opened.work.coordinators.made.groups.runtime.shards)
    await (await started_on_two_disks(tmp_path)).stop()
