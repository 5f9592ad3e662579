"""``ottla serve --nodes`` when all who count as in sync for a partition may lack its records.

Old copies of some nodes' directories were put back, and those of others are lost, or those nodes
were not in sync. Then the nodes decide from what all of them have; for those partitions only.
"""

import json

import pytest
from confluent_kafka import TopicPartition

from tests.commands import ottla
from tests.copied_data import (
    OPTIONS,
    admin,
    begin,
    consume,
    copy_metadata,
    create_on,
    directory,
    lose_disk,
    lose_metadata,
    partitions,
    produce,
    put_copies_back,
    put_metadata_back,
    take_copies,
    until,
    wait_for_isr,
)
from tools.nodes_peer import NodesPeer

pytestmark = pytest.mark.timeout(240)


def names(data, node, begin):
    return [one.name for one in directory(data, node).iterdir() if one.name.startswith(begin)]


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_a_backup_is_served_when_the_other_disk_is_lost(data, tmp_path, policy):
    """It was the only copy, and was deleted if its topic is compacted: others were "in sync"."""
    with NodesPeer(data, 3, OPTIONS).start() as peer:
        create_on(peer, "t", [2, 3], 3, **{"cleanup.policy": policy})
        for number in range(3):
            lines = "".join(f"{one}:{one}\n" for one in range(30) if one % 3 == number)
            ottla(peer, "produce", "t", "-p", str(number), "-f", "%k:%v", text=lines)
        wait_for_isr(peer, 2)
    take_copies(data, 2, tmp_path / "backup")
    with NodesPeer(data, 3, OPTIONS).start() as peer:
        ottla(peer, "produce", "t", "-f", "%k:%v", text="lost:99\n")
    put_copies_back(data, 2, tmp_path / "backup")
    lost = {"ottla.log.dirs.given.up": lose_disk(data, 3)}
    with NodesPeer(data, 3, OPTIONS).start() as peer:
        assert "nobody who has more is in sync" in peer.log_text()
        assert consume(peer) == list(range(30))
    with NodesPeer(data, 3, OPTIONS | lost).start() as peer:
        wait_for_isr(peer, 2)
        assert consume(peer) == list(range(30))


def test_of_two_old_copies_the_newer_is_served_when_the_third_disk_is_lost(data, tmp_path):
    """Each left the ISR, since another one "has all": nobody led, for ever."""
    begin(data)
    take_copies(data, 2, tmp_path / "2")
    with NodesPeer(data, 3, OPTIONS).start() as peer:
        produce(peer, range(60, 90))
        wait_for_isr(peer, 3)
    take_copies(data, 1, tmp_path / "1")
    with NodesPeer(data, 3, OPTIONS).start() as peer:
        produce(peer, range(90, 120))
        wait_for_isr(peer, 3)
    for node in (1, 2):
        put_copies_back(data, node, tmp_path / str(node))
    lost = {"ottla.log.dirs.given.up": lose_disk(data, 3)}
    with NodesPeer(data, 3, OPTIONS | lost).start() as peer:
        assert consume(peer) == list(range(90))
        wait_for_isr(peer, 3)
        produce(peer, range(90, 150))
        assert consume(peer) == list(range(150))


def test_metadata_that_is_not_old_keeps_its_word_where_one_partition_is_in_doubt(data, tmp_path):
    """What had been deleted since was back, and the topic made anew stayed offline for ever."""
    with NodesPeer(data, 3, OPTIONS).start() as peer:
        for topic in ("gone", "anew", "t"):
            ottla(peer, "topic", "create", topic, "-p", "3", "-r", "3")
            ottla(peer, "produce", topic, text="1\n2\n3\n")
        create_on(peer, "alone", [2, 3], 1)
        ottla(peer, "produce", "alone", text="1\n2\n")
        wait_for_isr(peer, 3)
    take_copies(data, 2, tmp_path / "copy")
    with NodesPeer(data, 3, OPTIONS | {"replica.lag.time.max.ms": 1500}).start() as peer:
        for topic in ("gone", "anew"):
            ottla(peer, "topic", "delete", topic, "--yes")
        ottla(peer, "topic", "create", "anew", "-p", "3", "-r", "3")
        ottla(peer, "produce", "anew", text="4\n")
        peer.pause_worker(3, 20)
        until(
            lambda: [each["isr"] for each in partitions(peer, "alone")] == [[2]],
            lambda: partitions(peer, "alone"),
        )
        peer.kill9()
    put_copies_back(data, 2, tmp_path / "copy")
    with NodesPeer(data, 3, OPTIONS).start() as peer:
        assert "nobody who has more is in sync" in peer.log_text()
        topics = json.loads(ottla(peer, "topic", "list", "-o", "json"))
        assert sorted(each["name"] for each in topics) == ["alone", "anew", "t"]
        wait_for_isr(peer, 3)
        for topic, values in (("anew", ["4"]), ("alone", ["1", "2"])):
            read = ottla(peer, "consume", topic, "--from", "earliest", "-f", "%v\\n").split()
            assert sorted(read) == values
        until(
            lambda: all(len(each["isr"]) == 3 for each in partitions(peer, "anew")),
            lambda: partitions(peer, "anew"),
        )
    assert len(names(data, 2, "gone-")) == 3, "set aside"


@pytest.mark.parametrize(("metadata", "end"), [("lost", 15), ("old", 15), ("lost", 20)])
def test_what_was_deleted_stays_deleted_whichever_copy_is_served(data, tmp_path, metadata, end):
    """An old copy with as many records led, with those that DeleteRecords had deleted since."""
    begin(data)
    take_copies(data, 2, tmp_path / "copy")
    copy_metadata(data, tmp_path / "metadata")
    with NodesPeer(data, 3, OPTIONS).start() as peer:
        wait_for_isr(peer, 3)
        ends = [TopicPartition("t", number, end) for number in range(3)]
        asked = admin(peer)
        for deleted in asked.delete_records(ends).values():
            deleted.result(30)
    put_copies_back(data, 2, tmp_path / "copy")
    if metadata == "lost":
        lose_metadata(data)
    else:
        put_metadata_back(data, tmp_path / "metadata")
    with NodesPeer(data, 3, OPTIONS).start() as peer:
        assert consume(peer) == list(range(3 * end, 60))
        wait_for_isr(peer, 3)


def test_compacted_copies_that_are_behind_are_made_anew_when_the_metadata_is_old(data, tmp_path):
    """What was deleted since, and compacted away on the others, was back when one of them led."""
    with NodesPeer(data, 3, OPTIONS).start() as peer:
        create_on(peer, "t", [1, 2, 3], 3, **{"cleanup.policy": "compact"})
        for number in range(3):
            ottla(peer, "produce", "t", "-p", str(number), "-f", "%k:%v", text=f"a:{number}\n")
        wait_for_isr(peer, 3)
    take_copies(data, 2, tmp_path / "copy")
    copy_metadata(data, tmp_path / "metadata")
    with NodesPeer(data, 3, OPTIONS).start() as peer:
        for number in range(3):
            text = f"b:{number + 3}\n"
            ottla(peer, "produce", "t", "-p", str(number), "-f", "%k:%v", text=text)
        wait_for_isr(peer, 3)
    put_copies_back(data, 2, tmp_path / "copy")
    put_metadata_back(data, tmp_path / "metadata")
    with NodesPeer(data, 3, OPTIONS).start() as peer:
        wait_for_isr(peer, 3)
        assert consume(peer) == list(range(6))
        found = {
            node: [each for each in names(data, node, "t-") if "-delete" in each]
            for node in (1, 2, 3)
        }
        assert [len(each) for each in found.values()] == [0, 3, 0], found


@pytest.fixture
def data(tmp_path):
    return tmp_path / "data"
