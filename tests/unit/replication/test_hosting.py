"""Partitions come and go: off the loop, in order, and whatever happens in between."""

import asyncio
import errno
import random
from types import SimpleNamespace

import pytest

from ottla.env.faulty_disk import DiskCall
from ottla.env.rng import SeededRng
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import LeaderEpoch, NodeId, TopicId, TopicPartition
from ottla.log.files.checkpoints import read_partition_metadata
from ottla.log.files.layout import (
    deleted_directory,
    is_deleted_directory,
    parse_partition_directory,
)
from ottla.metadata.image import MetadataDelta, PartitionChange, TopicImage
from ottla.metadata.keys import ConfigType
from ottla.metadata.values import PartitionState
from ottla.replication.hosting import RECONFIGURED_PER_TURN
from ottla.replication.hosting_steps import MADE_PER_STEP, REMOVED_PER_STEP

NODE = NodeId(1)
STATE = PartitionState((NODE,), (NODE,), NODE, LeaderEpoch(0), 0)


def id_of(number):
    return TopicId(b"topic id %07d" % number)


def made(topic, number, count, first=0):
    return [
        PartitionChange(topic, id_of(number), index, None, STATE) for index in range(first, count)
    ]


def gone(topic, number, count):
    return [PartitionChange(topic, id_of(number), index, STATE, None) for index in range(count)]


@pytest.fixture
def apply(node):
    """Let the image say so; nothing is done yet."""

    def apply(*changes):
        delta = MetadataDelta(revision=1, partitions=[one for each in changes for one in each])
        node.replica_manager.apply(None, delta)

    return apply


def hosted(node, topic):
    return {
        where.partition: partition.topic_id
        for where, partition in node.replica_manager.hosting.partitions.items()
        if where.topic == topic
    }


def on_disk(disk, log_dir="/data"):
    """Topic id by partition, of the directories that bear a partition's name."""
    found = {}
    for name in disk.list_directory(log_dir):
        where = parse_partition_directory(name)
        if where is not None and not is_deleted_directory(name):
            found[where] = read_partition_metadata(disk, f"{log_dir}/{name}/partition.metadata")
    return found


def produce(node, words, topic, index=0):
    where = TopicPartition(topic, index)
    outcome = node.replica_manager.appends.one(
        where, memoryview(bytearray(words.batch())), acks=1, timeout_ms=1000
    )
    return getattr(outcome, "code", ErrorCode.NONE)


def check_counts(node):
    for path, directory in node.log_manager.directories.items():
        inside = [log for log in node.log_manager.logs.values() if log.directory.startswith(path)]
        assert directory.log_count == len(inside)


def test_the_loop_touches_no_disk_and_clients_are_told_to_ask_again(node, apply, words):
    before = node.disk.counts.copy()
    apply(made("new", 1, 200))
    assert node.disk.counts == before, "the image's listener has no business with the disk"
    assert hosted(node, "new") == {}
    assert produce(node, words, "new", 199) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert produce(node, words, "nobody") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError) as refused:
        node.replica_manager.leader_of(TopicPartition("new", 7))
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    done = node.replica_manager.hosting.done("new")
    node.executor.run_all()
    assert done.is_done
    assert hosted(node, "new") == dict.fromkeys(range(200), id_of(1))
    assert produce(node, words, "new", 199) is ErrorCode.NONE


def test_many_partitions_are_some_jobs_with_one_sync_of_the_log_directory_each(node, apply):
    count = 5 * MADE_PER_STEP
    apply(made("new", 1, count))
    before = node.disk.counts.copy()
    assert node.executor.run_all() == 5
    syncs = node.disk.counts[DiskCall.SYNC_DIRECTORY] - before[DiskCall.SYNC_DIRECTORY]
    assert syncs == count + 5, "each directory of its own, and the log directory once a job"
    assert node.disk.counts[DiskCall.SYNC] - before[DiskCall.SYNC] == count
    apply(gone("new", 1, count))
    before = node.disk.counts.copy()
    jobs = -(-count // REMOVED_PER_STEP)
    assert node.executor.run_all() == jobs
    assert node.disk.counts[DiskCall.SYNC_DIRECTORY] - before[DiskCall.SYNC_DIRECTORY] == jobs
    assert not [where for where in on_disk(node.disk) if where.topic == "new"]
    check_counts(node)


def test_what_is_answered_is_durable(node, apply):
    apply(made("new", 1, 100))
    done = node.replica_manager.hosting.done("new")
    while not done.is_done:
        assert node.executor.run_next()
    crashed = node.disk._inner.crash(SeededRng(3))
    assert {w: i for w, i in on_disk(crashed).items() if w.topic == "new"} == {
        TopicPartition("new", index): id_of(1) for index in range(100)
    }
    apply(gone("new", 1, 100))
    done = node.replica_manager.hosting.done("new")
    while not done.is_done:
        assert node.executor.run_next()
    crashed = node.disk._inner.crash(SeededRng(4))
    assert not [where for where in on_disk(crashed) if where.topic == "new"]


def test_a_small_topic_does_not_wait_for_a_large_one(node, apply):
    apply(made("large", 1, 20 * MADE_PER_STEP))
    apply(made("small", 2, 1))
    small = node.replica_manager.hosting.done("small")
    large = node.replica_manager.hosting.done("large")
    jobs = 0
    while not small.is_done:
        node.executor.run_next()
        jobs += 1
    assert jobs <= 4
    assert not large.is_done
    node.executor.run_all()
    assert large.is_done


@pytest.mark.parametrize("jobs", range(5))
def test_a_topic_deleted_while_it_is_being_made_leaves_nothing(node, apply, jobs, words):
    apply(made("new", 1, 3 * MADE_PER_STEP))
    for _ in range(jobs):
        node.executor.run_next()
    apply(gone("new", 1, 3 * MADE_PER_STEP))
    assert hosted(node, "new") == {}
    assert produce(node, words, "new") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    done = node.replica_manager.hosting.done("new")
    node.executor.run_all()
    assert done.is_done
    assert not [where for where in on_disk(node.disk) if where.topic == "new"]
    assert not [where for where in node.log_manager.logs if where.topic == "new"]
    assert not node.log_manager.may_have_left("new")
    check_counts(node)


@pytest.mark.parametrize("began", [False, True])
def test_a_replica_that_goes_and_comes_back_while_it_is_being_made_has_a_log(
    node, apply, words, began
):
    """What is made first goes with its step; it must not be hosted for the second one."""
    if began:  # Else the first making has not begun when the replica goes.
        apply(made("moved", 1, 1))
    else:
        apply(made("other", 2, 1))
        apply(made("moved", 1, 1))
    apply(gone("moved", 1, 1))
    apply(made("moved", 1, 1))
    node.executor.run_all()
    partition = node.replica_manager.hosting.partitions[TopicPartition("moved", 0)]
    assert not partition.is_failed
    assert on_disk(node.disk)[TopicPartition("moved", 0)] == id_of(1)
    assert produce(node, words, "moved") is ErrorCode.NONE
    check_counts(node)


def test_a_log_that_is_made_anew_is_empty_and_what_its_process_may_not_lead_stays_so(
    node, apply, words
):
    apply(made("t1", 1, 1))
    node.executor.run_all()
    produce(node, words, "t1")
    hosting, where = node.replica_manager.hosting, TopicPartition("t1", 0)
    before = hosting.partitions[where]
    before.fence(LeaderEpoch(3))
    hosting.make_anew(before)
    assert where not in hosting.partitions
    hosting.make_anew(before)
    node.executor.run_all()
    after = hosting.partitions[where]
    assert after is not before
    assert after.log.log_end_offset == 0
    assert after.fenced_epoch == 3
    check_counts(node)


def test_nothing_is_appended_to_the_old_topic_once_a_new_one_has_its_name(node, apply, words):
    """Acknowledged for the new topic, stored in the old one's log: gone with it."""
    apply(made("t2", 1, 2))
    node.executor.run_all()
    assert produce(node, words, "t2") is ErrorCode.NONE
    apply(gone("t2", 1, 2), made("t2", 2, 2))
    assert produce(node, words, "t2") is ErrorCode.NOT_LEADER_OR_FOLLOWER
    node.executor.run_all()
    assert hosted(node, "t2") == dict.fromkeys(range(2), id_of(2))
    partition = node.replica_manager.get(TopicPartition("t2", 0))
    assert partition.log.log_end_offset == 0
    assert produce(node, words, "t2") is ErrorCode.NONE


def test_who_waits_for_a_partition_that_goes_is_answered(node, apply, words):
    apply(made("t2", 1, 1))
    node.executor.run_all()
    where = TopicPartition("t2", 0)
    waiting = node.replica_manager.appends.one(
        where, memoryview(bytearray(words.batch())), acks=-1, timeout_ms=60_000
    )
    assert not waiting.is_done
    apply(gone("t2", 1, 1))
    assert waiting.is_done
    assert words.codes(waiting) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 25))]
)
def test_whatever_the_order_the_disk_ends_as_the_image_says(node, apply, seed, words):
    rng = random.Random(seed)
    topics, number = {}, 0
    for _ in range(80):
        topic = rng.choice(["a", "b", "c"])
        if topic not in topics:
            number += 1
            topics[topic] = (number, rng.choice([1, 3, MADE_PER_STEP + 2]))
            apply(made(topic, *topics[topic]))
        elif rng.random() < 0.3:
            known, count = topics[topic]
            topics[topic] = (known, count + 2)
            apply(made(topic, known, count + 2, first=count))
        else:
            apply(gone(topic, *topics.pop(topic)))
        for _ in range(rng.choice([0, 0, 0, 1, 2, 5])):
            node.executor.run_next()
        for name in "abc":
            expected = id_of(topics[name][0]) if name in topics else None
            assert set(hosted(node, name).values()) <= {expected}
    node.executor.run_all()
    expected = {
        TopicPartition(name, index): id_of(known)
        for name, (known, count) in topics.items()
        for index in range(count)
    }
    for name in "abc":
        assert len(hosted(node, name)) == topics.get(name, (0, 0))[1]
    found = on_disk(node.disk)
    assert {where: found[where] for where in found if where.topic in "abc"} == expected
    assert {where for where in node.log_manager.logs if where.topic in "abc"} == set(expected)
    check_counts(node)
    node.check()


@pytest.mark.parametrize("call", [DiskCall.MAKE_DIRECTORY, DiskCall.OPEN, DiskCall.WRITE])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
def test_a_disk_that_refuses_some_partitions_costs_the_others_nothing(node, apply, call, code):
    node.disk.fail(call, nth=10, errno=code)
    apply(made("new", 1, 100))
    done = node.replica_manager.hosting.done("new")
    node.executor.run_all()
    assert done.is_done
    manager = node.replica_manager
    refused = [n for n in range(100) if manager.offline(TopicPartition("new", n)) is not None]
    assert len(refused) == 1
    assert len(hosted(node, "new")) == 100, "it is offline, with its reason"
    assert node.log_manager.directories["/data"].is_online
    node.clock.advance(30)  # Nobody has to restart a broker for a limit that has passed.
    node.measure_space()
    node.executor.run_all()
    assert manager.offline(TopicPartition("new", refused[0])) is None
    apply(gone("new", 1, 100))
    node.executor.run_all()
    assert not node.log_manager.may_have_left("new")
    check_counts(node)


def test_a_sync_that_fails_ends_the_directory_and_is_told_to_all(node, apply):
    node.disk.fail(DiskCall.SYNC, nth=3)
    apply(made("new", 1, 70))
    done = node.replica_manager.hosting.done("new")
    node.executor.run_all()
    assert done.is_done
    assert not node.log_manager.directories["/data"].is_online
    manager = node.replica_manager
    assert all(manager.offline(TopicPartition("new", index)) for index in range(70))


def test_a_directory_that_keeps_its_name_is_not_taken_for_the_new_topics(node, apply, words):
    apply(made("t2", 1, 1))
    node.executor.run_all()
    produce(node, words, "t2")
    node.disk.fail(DiskCall.RENAME, errno=errno.EMFILE, lasting=True)
    apply(gone("t2", 1, 1))
    node.executor.run_all()
    assert node.log_manager.may_have_left("t2")
    apply(made("t2", 2, 1))
    node.executor.run_all()
    assert node.replica_manager.offline(TopicPartition("t2", 0)) is not None
    assert on_disk(node.disk)[TopicPartition("t2", 0)] == id_of(1), (
        "its records are the old topic's"
    )
    node.disk.heal()
    node.measure_space()
    node.executor.run_all()
    assert node.replica_manager.get(TopicPartition("t2", 0)).log.log_end_offset == 0
    assert on_disk(node.disk)[TopicPartition("t2", 0)] == id_of(2)
    assert not node.log_manager.may_have_left("t2")


def test_one_directory_that_stays_keeps_the_mark_of_its_topic(node, apply):
    """The next one's success took the mark away; a start then made a topic of the rest."""
    apply(made("t2", 1, 3))
    node.executor.run_all()
    node.disk.fail(DiskCall.RENAME, errno=errno.EMFILE)
    apply(gone("t2", 1, 3))
    node.executor.run_all()
    assert node.log_manager.may_have_left("t2")


async def test_a_stop_waits_for_the_flush_of_a_topic_whose_removal_has_not_begun(
    node, apply, words
):
    """The log was closed under its flush, and the stop failed: no other log was closed."""
    apply(made("t2", 1, 1), made("t3", 2, 1))
    node.executor.run_all()
    apply(gone("t3", 2, 1))  # Under way: what goes next waits for it.
    assert produce(node, words, "t2") is ErrorCode.NONE
    apply(gone("t2", 1, 1))
    settling = asyncio.create_task(node.replica_manager.settle())
    await asyncio.sleep(0)
    node.executor.run_next()  # The removal of t3. What is left is the flush of t2.
    for _ in range(5):
        await asyncio.sleep(0)
    assert not settling.done()
    node.executor.run_all()
    await asyncio.wait_for(settling, 5)
    node.log_manager.stop()


@pytest.mark.parametrize("jobs", range(4))
def test_a_stop_in_the_middle_is_finished_by_the_next_start(make_node, words, jobs):
    node = make_node()
    changes = [*made("new", 1, 3 * MADE_PER_STEP)]
    node.replica_manager.apply(None, MetadataDelta(revision=1, partitions=changes))
    done = node.replica_manager.hosting.done("new")
    for _ in range(jobs):
        node.executor.run_next()
    settled = node.replica_manager.hosting.settle()
    node.executor.run_all()
    assert settled.is_done
    assert done.is_done
    if done.error is not None:
        assert done.error.code is ErrorCode.REQUEST_TIMED_OUT
    node.log_manager.stop()
    again = make_node(disk=node.disk)
    topic = TopicImage("new", id_of(1), (STATE,) * (3 * MADE_PER_STEP))
    again.replica_manager.host_all(SimpleNamespace(topics={"new": topic}))
    assert hosted(again, "new") == dict.fromkeys(range(3 * MADE_PER_STEP), id_of(1))
    assert produce(again, words, "new", 3 * MADE_PER_STEP - 1) is ErrorCode.NONE


def test_settings_of_many_partitions_change_some_per_turn(node, apply, monkeypatch):
    count = 3 * RECONFIGURED_PER_TURN
    apply(made("wide", 1, count))
    node.executor.run_all()
    node.settings = node.settings._replace(min_insync_replicas=7)
    later = []
    monkeypatch.setattr(node.clock, "call_later", lambda delay, turn: later.append(turn))
    node.replica_manager.apply(None, MetadataDelta(revision=2, configs=((ConfigType.BROKER, ""),)))

    def changed():
        return sum(
            partition.min_insync_replicas == 7 for partition in node.replica_manager.partitions
        )

    turns = [changed()]
    while later:
        later.pop()()
        turns.append(changed())
    steps = [now - before for before, now in zip([0, *turns], turns, strict=False)]
    assert max(steps) <= RECONFIGURED_PER_TURN
    assert turns[-1] == count + 2


@pytest.mark.parametrize("here", [range(5), (1, 3), (4,)], ids=["all", "some", "the last"])
def test_a_topics_settings_reach_its_partitions_and_no_others(node, apply, here):
    """Also when some of the topic's partitions are on other nodes."""
    apply([change for change in made("one", 1, 5) if change.partition in here])
    apply(made("other", 2, 5))
    node.executor.run_all()
    node.settings = node.settings._replace(min_insync_replicas=7)
    topic = TopicImage("one", id_of(1), (STATE,) * 5)
    changed = MetadataDelta(revision=2, configs=((ConfigType.TOPIC, "one"),))
    node.replica_manager.apply(SimpleNamespace(topic={"one": topic}.get), changed)
    found = {
        where: partition.min_insync_replicas
        for where, partition in node.replica_manager.hosting.partitions.items()
    }
    assert {where.partition for where in found if where.topic == "one"} == set(here)
    assert {where.topic for where, least in found.items() if least == 7} == {"one"}
    assert {where.topic for where, least in found.items() if least == 1} == {"other", "t"}


def test_a_start_knows_which_of_the_logs_that_are_missing_it_once_had(make_node):
    node = make_node(partitions=0)
    path = "/data/replication-offset-checkpoint"
    once, former = TopicPartition("t", 1), TopicPartition("t", 2)
    node.log_manager.checkpoints.job({path: {once: 5, former: 5}}).run()
    node.log_manager.remove_later(f"/data/{deleted_directory(former, bytes(range(16)))}")
    states = tuple(node.led(index).new for index in range(3))
    hosting = node.replica_manager.hosting
    hosting.host_all(SimpleNamespace(topics={"t": TopicImage("t", id_of(1), states)}))
    found = [(gone.where.partition, gone.was_there) for gone in hosting.missing_at_start]
    assert found == [(0, False), (1, True), (2, False)]


async def test_what_takes_its_role_while_the_node_stops_is_not_followed(make_node):
    """A topic was being made: nobody ended what followed it, and the process stayed for ever."""
    node = make_node(partitions=1)
    node.replica_manager.make_replicas = lambda: pytest.fail("made at the stop")
    await node.replica_manager.settle()
    node.replica_manager.role_taken(node.partition())
