"""Data of ``ottla serve --nodes`` that was copied, put back or lost, and what is read from it."""

import json
import shutil
import time
from fnmatch import fnmatch

from confluent_kafka.admin import AdminClient, NewTopic

from tests.commands import ottla
from tools.nodes_peer import NodesPeer

PATIENCE_SECONDS = 60
OPTIONS = {
    "offsets.topic.replication.factor": 3,
    "auto.create.topics.enable": "false",
}


def until(is_so, what):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, what()
        time.sleep(0.05)


def partitions(peer, topic="t"):
    return json.loads(ottla(peer, "topic", "describe", topic, "-o", "json"))["partitions"]


def admin(peer):
    return AdminClient({"bootstrap.servers": peer.bootstrap, "log_level": 0})


def create_on(peer, topic, nodes, count, **config):
    made = NewTopic(topic, count, replica_assignment=[nodes] * count, config=config)
    asked = admin(peer)
    asked.create_topics([made])[topic].result(30)


def produce(peer, values):
    """Spread values over three partitions; return when all are acknowledged."""
    for number in range(3):
        lines = "".join(f"{one}\n" for one in values if one % 3 == number)
        ottla(peer, "produce", "t", "-p", str(number), text=lines)


def consume(peer):
    read = ottla(peer, "consume", "t", "--from", "earliest", "-f", "%v\\n").split()
    return sorted(map(int, read))


def wait_for_isr(peer, count):
    until(
        lambda: all(len(each["isr"]) == count for each in partitions(peer)),
        lambda: partitions(peer),
    )


def directory(data, node):
    return data if node == 1 else data / "nodes" / str(node)


def take_copies(data, node, to):
    """Copy the partitions, and what is said of them, that a node has."""
    shutil.copytree(
        directory(data, node), to, ignore=shutil.ignore_patterns("nodes", "metadata.sqlite*")
    )


def put_copies_back(data, node, found):
    empty(data, node, but="metadata.sqlite*")
    shutil.copytree(found, directory(data, node), dirs_exist_ok=True)


def empty(data, node, but=""):
    """Remove what a node has, but names like ``but``, and the directories of other nodes."""
    for each in list(directory(data, node).iterdir()):
        if each.name != "nodes" and not fnmatch(each.name, but):
            shutil.rmtree(each) if each.is_dir() else each.unlink()


def lose_disk(data, node):
    """What is there next is an empty directory; return the id of what was there."""
    own = directory(data, node)
    lines = (own / "meta.properties").read_text().splitlines()
    shutil.rmtree(own)
    own.mkdir()
    return dict(line.split("=", 1) for line in lines if "=" in line)["directory.id"]


def lose_metadata(data):
    found = list(data.glob("metadata.sqlite*"))
    assert found
    for each in found:
        each.unlink()


def put_metadata_back(data, found):
    lose_metadata(data)
    for each in found.iterdir():
        shutil.copy2(each, data)


def copy_metadata(data, to):
    to.mkdir()
    for each in data.glob("metadata.sqlite*"):
        shutil.copy2(each, to)


def begin(data):
    with NodesPeer(data, 3, OPTIONS).start() as peer:
        ottla(peer, "topic", "create", "t", "-p", "3", "-r", "3", "-c", "min.insync.replicas=2")
        produce(peer, range(60))
        wait_for_isr(peer, 3)
