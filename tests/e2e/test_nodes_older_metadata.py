"""``ottla serve`` when ``metadata.sqlite`` was put back from an old copy, of whatever time."""

import shutil

import pytest
from confluent_kafka import TopicPartition

from tests.commands import ottla
from tests.copied_data import (
    OPTIONS,
    admin,
    copy_metadata,
    create_on,
    directory,
    empty,
    lose_disk,
    lose_metadata,
    partitions,
    put_copies_back,
    put_metadata_back,
    take_copies,
    until,
)
from tools.nodes_peer import NodesPeer
from tools.ottla_peer import OttlaPeer
from tools.peer import PeerFailed

pytestmark = pytest.mark.timeout(240)
ALONE = {"auto.create.topics.enable": "false"}


def peer_of(data, count, **more):
    return NodesPeer(data, count, OPTIONS | more) if count > 1 else OttlaPeer(data, ALONE | more)


def write(peer, values):
    ottla(peer, "produce", "t", text="".join(f"{one}\n" for one in values))


def read(peer):
    found = ottla(peer, "consume", "t", "--from", "earliest", "-f", "%o:%v\\n").split()
    return [int(one) for line in found for one in line.split(":")]


def as_written(count):
    return [one for offset in range(count) for one in (offset, offset)]


def move(peer, *nodes):
    ottla(peer, "topic", "move", "t", "--brokers", ",".join(map(str, nodes)))
    wanted = sorted(nodes)
    until(
        lambda: (
            [sorted(each["isr"]) for each in partitions(peer)] == [wanted]
            and [sorted(each["replicas"]) for each in partitions(peer)] == [wanted]
        ),
        lambda: partitions(peer),
    )


@pytest.fixture
def data(tmp_path):
    return tmp_path / "data"


@pytest.mark.parametrize("is_disk", [False, True])
def test_a_backup_of_the_time_as_a_single_node_brings_no_single_node_back(data, tmp_path, is_disk):
    """Of 60 acknowledged records 20 were read, or none, and their offsets were given again."""
    with peer_of(data, 1).start() as peer:
        ottla(peer, "topic", "create", "t", "-p", "1")
        write(peer, range(20))
    shutil.copytree(data, tmp_path / "disk")
    copy_metadata(data, tmp_path / "metadata")
    with peer_of(data, 3).start() as peer:
        move(peer, *((1, 2, 3) if is_disk else (2, 3)))
        write(peer, range(20, 60))
    if is_disk:
        empty(data, 1)
        shutil.copytree(tmp_path / "disk", data, dirs_exist_ok=True)
    else:
        put_metadata_back(data, tmp_path / "metadata")
    with pytest.raises(PeerFailed, match=r"partitions in nodes/2, nodes/3"):
        peer_of(data, 1).start()
    with peer_of(data, 3).start() as peer:
        write(peer, [60])
        assert read(peer) == as_written(61)


@pytest.mark.parametrize("count", [1, 2])
def test_the_number_of_nodes_of_that_time_is_refused(data, tmp_path, count):
    """The first node made the log again, empty: 60 acknowledged records, none read."""
    with peer_of(data, count).start() as peer:
        ottla(peer, "topic", "create", "t", "-p", "1")
        write(peer, range(20))
        move(peer, 1)
    copy_metadata(data, tmp_path / "metadata")
    with peer_of(data, count + 1).start() as peer:
        move(peer, count + 1)
        write(peer, range(20, 60))
    put_metadata_back(data, tmp_path / "metadata")
    for _ in range(2):
        with pytest.raises(PeerFailed, match=f"an old copy, and there are.*nodes/{count + 1}"):
            peer_of(data, count).start()
    with peer_of(data, count + 1).start() as peer:
        assert read(peer) == as_written(60)


def test_a_disk_that_is_not_mounted_is_waited_for(data, tmp_path):
    """Another node made the log again, empty, in the leader epochs of the one that was away."""
    with peer_of(data, 3).start() as peer:
        create_on(peer, "t", [1], 1)
        write(peer, range(20))
    copy_metadata(data, tmp_path / "metadata")
    with peer_of(data, 3).start() as peer:
        move(peer, 3)
        write(peer, range(20, 60))
    put_metadata_back(data, tmp_path / "metadata")
    directory(data, 3).rename(tmp_path / "away")
    directory(data, 3).mkdir()
    with pytest.raises(PeerFailed, match="an old copy, and this directory is new"):
        peer_of(data, 3).start()
    directory(data, 3).rmdir()
    (tmp_path / "away").rename(directory(data, 3))
    with peer_of(data, 3).start() as peer:
        assert read(peer) == as_written(60)


@pytest.mark.parametrize("nodes", [(1, 2, 3), (2, 3)])
def test_a_topic_that_was_made_anew_since_is_served(data, tmp_path, nodes):
    """It was offline for ever, or an empty log was served."""
    with peer_of(data, 3).start() as peer:
        create_on(peer, "t", [1], 1)
        write(peer, ["former"] * 5)
    copy_metadata(data, tmp_path / "metadata")
    with peer_of(data, 3).start() as peer:
        ottla(peer, "topic", "delete", "t", "--yes")
        create_on(peer, "t", list(nodes), 1)
        write(peer, range(60))
    put_metadata_back(data, tmp_path / "metadata")
    for _ in range(2):
        with peer_of(data, 3).start() as peer:
            assert read(peer) == as_written(60)
            until(
                lambda peer=peer: len(partitions(peer)[0]["isr"]) == len(nodes),
                lambda peer=peer: partitions(peer),
            )


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_replica_that_has_nothing_since_all_was_deleted_is_no_older_one(data, tmp_path, is_moved):
    """It knew no leader epoch: an old copy led, and gave offsets a second time."""
    with peer_of(data, 3).start() as peer:
        create_on(peer, "t", [1, 2] if is_moved else [2, 3], 1)
        write(peer, range(20))
        until(lambda: len(partitions(peer)[0]["isr"]) == 2, lambda: partitions(peer))
    take_copies(data, 2, tmp_path / "copy")
    lost = {}
    with peer_of(data, 3).start() as peer:
        write(peer, range(20, 30))
        asked = admin(peer)
        for deleted in asked.delete_records([TopicPartition("t", 0, 30)]).values():
            deleted.result(30)
        if is_moved:
            move(peer, 3, 2)
    if not is_moved:
        lost = {"ottla.log.dirs.given.up": lose_disk(data, 3)}
    with peer_of(data, 3, **lost).start() as peer:
        until(lambda: len(partitions(peer)[0]["isr"]) == 2, lambda: partitions(peer))
    put_copies_back(data, 2, tmp_path / "copy")
    lose_metadata(data)
    with peer_of(data, 3).start() as peer:
        assert read(peer) == []
        write(peer, [30])
        assert read(peer) == [30, 30]
