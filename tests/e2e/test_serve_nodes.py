"""``ottla serve --nodes``: several processes that every client sees as one cluster."""

import contextlib
import json
import os
import shutil
import signal
import socket
import time

import pytest

from tests.commands import run_command
from tools.nodes_peer import NodesPeer, has_ended, wait_for_ends
from tools.ottla_peer import OttlaPeer
from tools.peer import PeerFailed

# Other people's code, other people's warnings.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
PATIENCE_SECONDS = 40


def ottla(peer, *arguments, text=""):
    """Run a command that must succeed; return what it says."""
    code, out, err = run_command(peer.bootstrap, *arguments, text=text)
    assert code == 0, err
    return out


def status(peer):
    rows = json.loads(ottla(peer, "cluster", "status", "-o", "json"))
    return {row["node_id"]: row for row in rows}


def until(is_so):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def started(tmp_path):
    """Start peers that are gone after the test."""
    with contextlib.ExitStack() as peers:

        def start(peer):
            peers.callback(peer.kill9)
            return peer.start()

        yield start


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    with NodesPeer(tmp_path_factory.mktemp("nodes") / "data", 3) as peer:
        yield peer.start()


def test_kafka_python_enters_by_the_door_and_uses_every_node(nodes):
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import NewTopic

    admin = KafkaAdminClient(bootstrap_servers=nodes.bootstrap)
    admin.create_topics([NewTopic("spread", 6, 1)])
    brokers = {each["broker_id"]: each["port"] for each in admin.describe_cluster()["brokers"]}
    assert set(brokers) == {1, 2, 3}
    assert len({*brokers.values(), nodes.port}) == 4, "each node has a port beside the door"
    leaders = {
        each["partition_index"]: each["leader_id"]
        for each in admin.describe_topics(["spread"])[0]["partitions"]
    }
    assert sorted(leaders.values()) == [1, 1, 2, 2, 3, 3]
    admin.close()
    producer = KafkaProducer(bootstrap_servers=nodes.bootstrap)
    sent = [producer.send("spread", b"%d" % n, partition=n % 6) for n in range(300)]
    producer.flush()
    assert all(each.get(PATIENCE_SECONDS) for each in sent)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=nodes.bootstrap)
    consumer.assign([TopicPartition("spread", number) for number in leaders])
    consumer.seek_to_beginning()
    values = {next(consumer).value for _ in range(300)}
    consumer.close()
    assert values == {b"%d" % n for n in range(300)}


def test_a_group_of_librdkafka_reads_from_every_node(nodes):
    from confluent_kafka import Consumer, Producer

    ottla(nodes, "topic", "create", "grouped", "-p", "3")
    producer = Producer({"bootstrap.servers": nodes.bootstrap})
    for number in range(90):
        producer.produce("grouped", b"%d" % number, partition=number % 3)
    assert producer.flush(PATIENCE_SECONDS) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": nodes.bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["grouped"])
    values = set()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(values) < 90 and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            values.add(message.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    assert values == {b"%d" % number for number in range(90)}


def test_a_killed_node_comes_back_while_the_others_serve(nodes):
    ottla(nodes, "topic", "create", "killed", "-p", "3")
    ottla(nodes, "produce", "killed", text="".join(f"{n}\n" for n in range(60)))
    before, workers = status(nodes), nodes.workers()
    pid = nodes.kill_worker(2)
    wait_for_ends([pid], PATIENCE_SECONDS)
    assert "killed" in ottla(nodes, "topic", "list"), "another node answers at the door"
    until(lambda: status(nodes).get(2, {}).get("state") == "up")
    after = status(nodes)
    assert after[2]["port"] == before[2]["port"]
    assert nodes.workers().keys() == workers.keys()
    assert nodes.workers()[2] != pid
    read = ottla(nodes, "consume", "killed", "--from", "earliest", "-f", "%v\\n").split()
    assert sorted(map(int, read)) == list(range(60))
    assert "[node 2]" not in nodes.log_text() or "Traceback" not in nodes.log_text()
    assert "node 2 ended by signal 9; it starts again in 0.05 s" in nodes.log_text()


def leaders(peer, topic):
    rows = json.loads(ottla(peer, "topic", "describe", topic, "-o", "json"))["partitions"]
    return [row["leader"] for row in rows]


@pytest.mark.timeout(240)
def test_a_node_that_is_stopped_alone_hands_over_and_all_together_do_not(started, tmp_path):
    peer = started(NodesPeer(tmp_path / "data", 3))
    ottla(peer, "topic", "create", "copied", "-p", "6", "-r", "3")
    assert sorted(leaders(peer, "copied")) == [1, 1, 2, 2, 3, 3]
    pid = peer.workers()[2]
    os.kill(pid, signal.SIGTERM)
    wait_for_ends([pid], PATIENCE_SECONDS)
    until(lambda: "node 2 ended with exit code 0" in peer.log_text())
    moved = leaders(peer, "copied")
    assert {*moved} == {1, 3}
    until(lambda: status(peer).get(2, {}).get("state") == "up")
    assert peer.stop() == 0
    started(peer)
    assert leaders(peer, "copied") == moved
    assert peer.stop() == 0


def test_when_the_supervisor_is_killed_everything_is_gone_and_starts_anew(started, tmp_path):
    peer = started(NodesPeer(tmp_path / "data", 2))
    ottla(peer, "topic", "create", "kept", "-p", "2")
    ottla(peer, "produce", "kept", text="a\nb\nc\n")
    workers = list(peer.workers().values())
    assert len(workers) == 2
    peer.kill9()
    wait_for_ends(workers, PATIENCE_SECONDS)
    started(peer)
    read = ottla(peer, "consume", "kept", "--from", "earliest", "-f", "%v\\n").split()
    assert sorted(read) == ["a", "b", "c"]
    assert peer.stop() == 0


def test_data_of_one_node_opens_as_node_one_and_fewer_nodes_are_refused(started, tmp_path):
    data = tmp_path / "data"
    one = started(OttlaPeer(data))
    ottla(one, "topic", "create", "first", "-p", "1")
    ottla(one, "produce", "first", text="old\n")
    assert one.stop() == 0
    three = started(NodesPeer(data, 3))
    assert ottla(three, "consume", "first", "--from", "earliest", "-f", "%v\\n") == "old\n"
    ottla(three, "topic", "create", "second", "-p", "3")
    assert three.stop() == 0
    for peer in (OttlaPeer(data), NodesPeer(data, 2)):
        with pytest.raises(
            PeerFailed, match=r"node 3 has 1 partition (.|\n)*fix: ottla serve --nodes 3"
        ):
            started(peer)
    four = started(NodesPeer(data, 4))
    assert set(status(four)) == {1, 2, 3, 4}
    assert four.stop() == 0
    # The directory of another cluster in the place of a node's own.
    meta = data / "nodes" / "2" / "meta.properties"
    lines = [
        "cluster.id=another" if line.startswith("cluster.id=") else line
        for line in meta.read_text().splitlines()
    ]
    meta.write_text("\n".join(lines) + "\n")
    with pytest.raises(PeerFailed, match=r"error: node 2: (.|\n)*of cluster another"):
        started(NodesPeer(data, 3))


@pytest.mark.slow
def test_directories_that_are_swapped_or_lost_are_told_and_lose_nothing(started, tmp_path):
    data = tmp_path / "data"
    two, three, aside = data / "nodes" / "2", data / "nodes" / "3", tmp_path / "aside"

    def read(peer):
        read = ottla(peer, "consume", "kept", "--from", "earliest", "-f", "%v\\n").split()
        return sorted(map(int, read))

    def swap():
        for here, there in ((two, aside), (three, two), (aside, three)):
            here.rename(there)

    peer = started(NodesPeer(data, 3))
    ottla(peer, "topic", "create", "kept", "-p", "3")
    ottla(peer, "produce", "kept", text="".join(f"{n}\n" for n in range(30)))
    assert peer.stop() == 0
    swap()
    with pytest.raises(PeerFailed, match=r"belongs to node [23] of cluster .*; this is node [23]"):
        started(NodesPeer(data, 3))
    swap()
    two.rename(aside)
    without = started(NodesPeer(data, 3))
    assert "put it back into log.dirs" in without.log_text()
    assert {row["state"] for row in status(without).values()} == {"up"}
    ottla(without, "topic", "create", "more", "-p", "1")
    ottla(without, "produce", "more", text="1\n")
    assert without.stop() == 0
    shutil.rmtree(two)
    aside.rename(two)
    again = started(NodesPeer(data, 3))
    assert read(again) == list(range(30))
    assert again.stop() == 0


def test_a_taken_port_is_told_before_anything_starts(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        data = tmp_path / "data"
        where = ("--port", "0", "--node-ports", str(port), "--data", str(data))
        code, _, err = run_command("", "serve", "--nodes", "2", *where)
    assert code == 1
    assert f"127.0.0.1:{port}" in err
    assert not data.exists()


def test_nodes_in_memory_end_together(started, tmp_path):
    class Forgetful(NodesPeer):
        def command(self):
            words = [*super().command(), "--memory"]
            at = words.index("--data")
            return words[:at] + words[at + 2 :]

    peer = started(Forgetful(tmp_path / "data", 2))
    ottla(peer, "topic", "create", "gone", "-p", "2")
    pids = [*peer.workers().values(), peer.supervisor]
    peer.kill_worker(1)
    wait_for_ends(pids, PATIENCE_SECONDS)
    assert peer.process.wait(PATIENCE_SECONDS) == 1
    until(lambda: "its data was in memory" in peer.log_text())


def test_ctrl_c_at_a_terminal_ends_all_nodes_in_good_order(started, tmp_path):
    class InGroup(NodesPeer):
        """As from a terminal: everything is in one group of processes."""

        def command(self):
            return ["setsid", *super().command()]

    peer = started(InGroup(tmp_path / "data", 2))
    workers = list(peer.workers().values())
    os.killpg(os.getpgid(workers[0]), signal.SIGINT)
    assert peer.process.wait(PATIENCE_SECONDS) == 0
    assert all(map(has_ended, workers))
    assert "Traceback" not in peer.log_text()


def test_options_that_nodes_cannot_have_are_refused():
    for arguments, told in (
        (["--nodes", "0"], "neither auto nor a number"),
        (["--nodes", "2", "-D", "node.id=7"], "node.id is 7"),
        (["--node-ports", "9000"], "--nodes"),
        (["--nodes", "3", "-D", "listeners=A://:9092,B://:9093",
          "-D", "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT"], "port 9093"),
    ):  # fmt: skip
        code, _, err = run_command("", "serve", *arguments)
        assert (code, told in err) == (2, True), err
