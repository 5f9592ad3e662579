"""A node that is started with other log directories than it had makes nothing anew in silence."""

import asyncio
import shutil

import pytest

from ottla.broker import Broker
from ottla.cluster.topics import NewTopic
from ottla.config.files import broker_config
from ottla.environment import Environment
from ottla.errors import ErrorCode
from ottla.ids import TopicPartition
from ottla.log.files.checkpoints import read_meta_properties
from ottla.node.work import check_space
from ottla.records.builder import build_batch
from ottla.records.record import Record

PLACES = [TopicPartition("t", number) for number in range(4)]


@pytest.fixture
def paths(tmp_path):
    return [tmp_path / name for name in ("one", "two", "three")]


async def started(*log_dirs, given_up=""):
    config = broker_config(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": ",".join(map(str, log_dirs)),
            "ottla.log.dirs.given.up": given_up,
        }
    )
    broker = Broker(config, environment=Environment.real(memory=False))
    await broker.start()
    return broker


async def resolved(pending):
    done = asyncio.get_running_loop().create_future()
    pending.on_done(done.set_result)
    return await asyncio.wait_for(done, 20)


async def append(broker, where):
    batch = memoryview(bytearray(build_batch([Record(value=b"acknowledged")])))
    answer = broker.node.work.replica_manager.appends.many(
        [(where, batch)], acks=-1, timeout_ms=10_000
    )
    if not isinstance(answer, list):
        answer = (await resolved(answer)).value
    return answer[0].code if hasattr(answer[0], "code") else ErrorCode.NONE


def ends(broker):
    """By partition, where its log ends; None: it is offline."""
    found = {}
    for where in PLACES:
        partition = broker.node.work.replica_manager.get(where)
        found[where] = None if partition.is_failed else partition.log.log_end_offset
    return found


async def filled(one, two):
    """Have a topic in two log directories; return the partitions in the second one."""
    broker = await started(one, two)
    await resolved(broker.node.work.controller.create_topics([NewTopic("t", len(PLACES))]))
    for where in PLACES:
        assert await append(broker, where) is ErrorCode.NONE
    await broker.stop()
    inside = [where for where in PLACES if (two / str(where)).exists()]
    assert len(inside) == 2
    return inside


async def test_what_lies_in_a_directory_left_out_of_log_dirs_is_offline_and_comes_back(
    paths, caplog
):
    """It was made anew, empty, and acknowledged records; with both there, neither could be read."""
    one, two, three = paths
    away = await filled(one, two)
    for others in ((one,), (one, three)):
        broker = await started(*others)
        assert ends(broker) == {where: None if where in away else 1 for where in PLACES}
        assert await append(broker, away[0]) is ErrorCode.KAFKA_STORAGE_ERROR
        assert f"not in log.dirs: {two}" in broker.node.work.replica_manager.offline(away[0])
        await resolved(
            broker.node.work.controller.create_topics([NewTopic(f"new{len(others)}", 2)])
        )
        await broker.stop()
    assert "ottla.log.dirs.given.up" in caplog.text
    broker = await started(one, two, three)
    assert ends(broker) == dict.fromkeys(PLACES, 1)
    await broker.stop()


async def test_a_directory_on_another_path_is_not_missed(paths, tmp_path):
    one, two, _ = paths
    await filled(one, two)
    two.rename(tmp_path / "moved")
    broker = await started(one, tmp_path / "moved")
    assert ends(broker) == dict.fromkeys(PLACES, 1)
    await broker.stop()


async def test_a_disk_that_was_not_mounted_is_not_taken_for_an_empty_one(paths, tmp_path):
    one, two, _ = paths
    away = await filled(one, two)
    two.rename(tmp_path / "not mounted")
    two.mkdir()
    broker = await started(one, two)
    assert ends(broker) == {where: None if where in away else 1 for where in PLACES}
    await broker.stop()


@pytest.mark.parametrize("is_empty", [True, False])
async def test_a_directory_that_has_lost_its_identity_only_is_not_missed(paths, is_empty, caplog):
    one, two, _ = paths
    await filled(one, two)
    (two / "meta.properties").write_bytes(b"") if is_empty else (two / "meta.properties").unlink()
    for _ in range(2):
        broker = await started(one, two)
        assert ends(broker) == dict.fromkeys(PLACES, 1)
        assert not broker.node.data.logs.missing
        await broker.stop()
    assert "given.up" not in caplog.text


async def test_what_lay_in_a_directory_that_is_given_up_is_made_anew(paths):
    one, two, _ = paths
    away = await filled(one, two)
    lost = read_meta_properties(
        Environment.real(memory=False).disk, f"{two}/meta.properties"
    ).directory_id
    for given_up in (lost, ""):  # It is forgotten, and need not be named for ever.
        broker = await started(one, given_up=given_up)
        assert ends(broker) == {where: 0 if where in away else 1 for where in PLACES}
        await broker.stop()


async def test_a_topic_deleted_while_a_directory_is_missing_stays_deleted(paths):
    """Its mark went, and the directory came back as a topic."""
    one, two, _ = paths
    await filled(one, two)
    for log_dirs in ((one,), (one,), (one, two)):
        broker = await started(*log_dirs)
        if "t" in broker.node.data.follower.image.topics:
            assert log_dirs == (one,)
            topic_id = broker.node.data.follower.image.topics["t"].topic_id
            await resolved(broker.node.work.controller.delete_topics([(None, topic_id)]))
        assert "t" not in broker.node.data.follower.image.topics
        await broker.stop()
    assert not [path for path in two.iterdir() if path.name in map(str, PLACES)]


@pytest.mark.parametrize("by", ["removal", "renaming", "another one"])
async def test_a_log_directory_that_vanishes_takes_no_more_records(paths, tmp_path, by):
    """Its open files took them, acknowledged, and were gone with the process."""
    one, two, _ = paths
    away = await filled(one, two)
    broker = await started(one, two)
    if by == "removal":
        shutil.rmtree(two)
    else:
        two.rename(tmp_path / "elsewhere")
    if by == "another one":
        shutil.copytree(tmp_path / "elsewhere", two)
    await check_space(broker.node.data.logs, broker._env)
    for where in PLACES:
        code = ErrorCode.KAFKA_STORAGE_ERROR if where in away else ErrorCode.NONE
        assert await append(broker, where) is code
    assert not broker.failed.is_set()
    one.rename(tmp_path / "metadata")
    await check_space(broker.node.data.logs, broker._env)
    assert "not at its path any more" in str(broker.failure)
    await broker.stop()


async def test_the_copy_of_a_deleted_topic_does_not_stay_after_a_crash(paths):
    """It moved when it was deleted; its space was gone until a topic had the same name again."""
    one, two, three = paths
    await filled(one, two)
    copy = two / f"gone-0.{'0123456789abcdef' * 2}-future"
    copy.mkdir()
    (copy / "00000000000000000000.log").write_bytes(b"a part of what it had")
    for log_dirs, is_to_go in (((one, two, three), False), ((one, two, three), True)):
        broker = await started(*log_dirs)  # With another directory it may be the log's.
        try:
            assert (str(copy) in broker.node.data.logs.deleted) is is_to_go
        finally:
            await broker.stop()
