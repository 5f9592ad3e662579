"""``ottla serve --nodes`` after its metadata file was lost: the newest copies are served again."""

import contextlib
import os
import shutil
import signal
import threading
import time

import pytest

from tests.commands import ottla
from tests.copied_data import (
    OPTIONS,
    PATIENCE_SECONDS,
    begin,
    consume,
    copy_metadata,
    directory,
    empty,
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
from tools.ottla_peer import OttlaPeer
from tools.peer import PeerFailed

pytestmark = pytest.mark.timeout(240)


@contextlib.contextmanager
def starting_first(peer, first):
    """Let no node but ``first`` do a step before it has opened its logs, or serves."""
    stopped, log_dir = [], directory(peer.data, first)

    def hold_the_others():
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(stopped) < peer.nodes - 1 and time.monotonic() < deadline:
            if peer.process is not None:
                for node, pid in peer.workers().items():
                    if node != first and pid not in stopped:
                        os.kill(pid, signal.SIGSTOP)
                        stopped.append(pid)
            time.sleep(0.002)
        # The mark of a clean stop goes when the logs are opened.
        while (log_dir / ".kafka_cleanshutdown").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.7)
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=hold_the_others)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    assert len(stopped) == peer.nodes - 1


@pytest.fixture
def data(tmp_path):
    return tmp_path / "data"


@pytest.mark.parametrize(
    "stale", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)]
)
def test_the_newest_copy_is_served_although_a_stale_one_is_there_first(data, tmp_path, stale):
    """The first node to start served its own: 480 acknowledged records were hidden."""
    with NodesPeer(data, 3, OPTIONS).start() as peer:
        ottla(peer, "topic", "create", "t", "-p", "3", "-r", "3", "-c", "min.insync.replicas=2")
        produce(peer, range(60))
        wait_for_isr(peer, 3)
    take_copies(data, stale, tmp_path / "stale")
    with NodesPeer(data, 3, OPTIONS).start() as peer:
        produce(peer, range(60, 540))
        wait_for_isr(peer, 3)
    put_copies_back(data, stale, tmp_path / "stale")
    lose_metadata(data)
    with NodesPeer(data, 3, OPTIONS) as peer:
        with starting_first(peer, stale):
            peer.start()
        assert consume(peer) == list(range(540))
        wait_for_isr(peer, 3)  # The factor is as before, and who was behind has caught up.
        assert stale not in [each["leader"] for each in partitions(peer)]
        produce(peer, range(540, 600))
    for node in {1, 2, 3} - {stale}:
        for found in directory(data, node).glob("t-?"):
            shutil.rmtree(found)
    lose_metadata(data)
    with NodesPeer(data, 3, OPTIONS).start() as peer:  # Who was behind has them, too.
        assert consume(peer) == list(range(600))


def start_in_vain(peer):
    try:
        with pytest.raises(PeerFailed):
            peer.start()
    finally:
        peer.kill9()
    return peer.log_text()


def test_fewer_nodes_than_have_copies_are_refused_without_metadata(data, tmp_path):
    """They served what they had, and made what they had not anew, empty."""
    with NodesPeer(data, 3, OPTIONS).start() as peer:
        ottla(peer, "topic", "create", "t", "-p", "3", "-r", "1")
        produce(peer, range(60))
    lose_metadata(data)
    said = start_in_vain(OttlaPeer(data, OPTIONS))
    assert "there are partitions in nodes/2, nodes/3" in said
    said = start_in_vain(NodesPeer(data, 2, OPTIONS))
    assert "there are partitions in nodes/3" in said
    assert "ottla serve --nodes 3" in said
    with NodesPeer(data, 3, OPTIONS).start() as peer:
        assert consume(peer) == list(range(60))


def test_nothing_is_served_without_metadata_while_a_log_directory_cannot_be_read(tmp_path):
    """What is in it may be newer."""
    first, second = tmp_path / "first", tmp_path / "second"

    def peer_of_both():
        peer = NodesPeer(first, 2, OPTIONS)
        peer.data = f"{first},{second}"
        return peer

    with peer_of_both().start() as peer:
        ottla(peer, "topic", "create", "t", "-p", "3", "-r", "2")
        produce(peer, range(60))
        wait_for_isr(peer, 2)
    lose_metadata(first)
    broken = second / "nodes" / "2"
    broken.rename(second / "mended")
    broken.write_bytes(b"no directory")
    said = start_in_vain(peer_of_both())
    assert f"node 2: {broken} (" in said
    broken.unlink()
    (second / "mended").rename(broken)
    with peer_of_both().start() as peer:
        assert consume(peer) == list(range(60))


def test_the_start_of_nodes_that_were_killed_amid_the_first_one_settles_it(data):
    with NodesPeer(data, 3, OPTIONS).start() as peer:
        ottla(peer, "topic", "create", "t", "-p", "3", "-r", "3")
        produce(peer, range(60))
    lose_metadata(data)
    peer = NodesPeer(data, 3, OPTIONS)
    starting = threading.Thread(target=lambda: start_in_vain(peer))
    starting.start()
    until((data / "metadata.sqlite").exists, peer.log_text)
    peer.kill9()
    starting.join()
    with NodesPeer(data, 3, OPTIONS).start() as peer:
        assert consume(peer) == list(range(60))
        wait_for_isr(peer, 3)


def test_an_old_copy_of_the_first_nodes_disk_with_the_metadata_is_put_back(data, tmp_path):
    """Others, whole and in sync, were cut to the copy."""
    begin(data)
    take_copies(data, 1, tmp_path / "first")
    copy_metadata(data, tmp_path / "metadata")
    with NodesPeer(data, 3, OPTIONS).start() as peer:
        produce(peer, range(60, 300))
        wait_for_isr(peer, 3)
        ottla(peer, "topic", "create", "new", "-r", "3")
        ottla(peer, "produce", "new", text="one\n")
    put_copies_back(data, 1, tmp_path / "first")
    put_metadata_back(data, tmp_path / "metadata")
    with NodesPeer(data, 3, OPTIONS).start() as peer:
        assert "metadata was restored from an old copy" in peer.log_text()
        assert consume(peer) == list(range(300))
        wait_for_isr(peer, 3)
        assert ottla(peer, "topic", "describe", "t", "-o", "json").count("min.insync.replicas")
        read = ottla(peer, "consume", "new", "--from", "earliest", "-f", "%v\\n").split()
        assert read == ["one"]
        produce(peer, range(300, 360))
    with NodesPeer(data, 3, OPTIONS).start() as peer:
        assert peer.log_text().count("the newest copy of each partition is served") == 1
        assert consume(peer) == list(range(360))


def test_of_old_copies_of_all_nodes_the_newest_is_served(data, tmp_path):
    """Whoever left the ISR last was served: 60 of 90 records, though one disk had all."""
    begin(data)
    for node in (1, 3):
        take_copies(data, node, tmp_path / str(node))
    with NodesPeer(data, 3, OPTIONS).start() as peer:
        produce(peer, range(60, 90))
        wait_for_isr(peer, 3)
    take_copies(data, 2, tmp_path / "2")
    with NodesPeer(data, 3, OPTIONS).start() as peer:
        produce(peer, range(90, 120))
        wait_for_isr(peer, 3)
    for node in (1, 2, 3):
        put_copies_back(data, node, tmp_path / str(node))
    with NodesPeer(data, 3, OPTIONS).start() as peer:
        assert consume(peer) == list(range(90))
        wait_for_isr(peer, 3)
        produce(peer, range(90, 150))
        assert consume(peer) == list(range(150))


@pytest.mark.parametrize("node", [1, 2])
def test_a_disk_that_is_not_mounted_is_missed_without_metadata(data, tmp_path, node):
    """Its records may be the newest: the others' copies were served, and these were cut."""
    begin(data)
    take_copies(data, node, tmp_path / "disk")
    lose_metadata(data)
    empty(data, node)
    peer = NodesPeer(data, 3, OPTIONS)
    text = start_in_vain(peer)
    assert "the metadata is lost, and this directory is new" in text
    assert f"start once with -D ottla.log.dirs.given.up={directory(data, node)}" in text
    put_copies_back(data, node, tmp_path / "disk")
    with peer.start():
        assert consume(peer) == list(range(60))


@pytest.mark.parametrize("node", [1, 2])
def test_a_disk_that_is_lost_with_the_metadata_can_be_given_up(data, node):
    begin(data)
    empty(data, node)
    lost = {"ottla.log.dirs.given.up": str(directory(data, node))}
    if node != 1:
        lose_metadata(data)
    with NodesPeer(data, 3, OPTIONS | lost).start() as peer:
        assert consume(peer) == list(range(60))
        produce(peer, range(60, 90))


def test_disks_of_all_further_nodes_that_are_not_mounted_are_missed_without_metadata(
    data, tmp_path
):
    """Node 1 alone went on with what it had, and the others were made anew at the mount points."""
    begin(data)
    lose_metadata(data)
    for node in (2, 3):
        directory(data, node).rename(tmp_path / str(node))
        directory(data, node).mkdir()
    peer = NodesPeer(data, 3, OPTIONS)
    text = start_in_vain(peer)
    assert "the metadata is lost, and this directory is new" in text
    lost = ",".join(str(directory(data, node)) for node in (2, 3))
    assert f"start once with -D ottla.log.dirs.given.up={lost}" in text
    assert not any(any(directory(data, node).iterdir()) for node in (2, 3))
    with NodesPeer(data, 3, OPTIONS | {"ottla.log.dirs.given.up": lost}).start() as peer:
        assert consume(peer) == list(range(60))


def test_the_data_of_one_node_becomes_that_of_several_without_metadata(data):
    """Nobody misses nodes that there never were."""
    with NodesPeer(data, 1, OPTIONS).start() as peer:
        ottla(peer, "topic", "create", "t", "-p", "3")
        produce(peer, range(60))
    lose_metadata(data)
    with NodesPeer(data, 3, OPTIONS).start() as peer:
        assert consume(peer) == list(range(60))
