"""Three hosts on an etcd of the test: what clients see while nodes and etcd end and stand still."""

import re
import shutil
import subprocess
import time

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.client.blocking.connection import BlockingConnection
from ottla.client.wire.settings import Address, ClientSettings
from ottla.errors import ErrorCode
from ottla.log.files.layout import LINEAGE
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.records.builder import build_batch
from ottla.records.record import Record
from tests.commands import run_command
from tests.etcd_server import needs_etcd
from tests.hosts import SESSION_MS, Hosts

PATIENCE_SECONDS = 60
# Other people's code, other people's warnings.
pytestmark = [
    needs_etcd,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
    pytest.mark.timeout(240),
]


@pytest.fixture
def hosts(tmp_path):
    with Hosts(tmp_path) as hosts:
        yield hosts


def create(hosts, topic="t", partitions=1):
    admin = AdminClient({"bootstrap.servers": hosts.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, partitions, 3)])[topic].result(PATIENCE_SECONDS)
    for partition in range(partitions):
        hosts.wait_for_isr(topic, partition=partition)


def producer_of(hosts, **options):
    settings = {
        "bootstrap.servers": hosts.bootstrap,
        "enable.idempotence": True,
        "linger.ms": 0,
        "log_level": 0,
    }
    return Producer(settings | {name.replace("_", "."): each for name, each in options.items()})


def produce(producer, values, topic="t"):
    """Send values; all must be acknowledged."""
    refused = []

    def told(error, message):
        if error is not None:
            refused.append((message.value(), error))

    for value in values:
        producer.produce(topic, value, on_delivery=told)
    assert producer.flush(PATIENCE_SECONDS) == 0
    assert refused == []


def consume(hosts, count, topic="t", group="g"):
    """Return the values of ``count`` records, read by a group that commits, and the rest."""
    consumer = Consumer(
        {
            "bootstrap.servers": hosts.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    values = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        while len(values) < count and time.monotonic() < deadline:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                values.append(message.value())
        if values:
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return values


def test_records_groups_and_transactions_outlive_a_killed_leader(hosts):
    create(hosts)
    producer = producer_of(hosts)
    produce(producer, [b"%d" % number for number in range(50)])
    assert consume(hosts, 50) == [b"%d" % number for number in range(50)]
    transactional = producer_of(hosts, transactional_id="x")
    transactional.init_transactions(PATIENCE_SECONDS)
    before = hosts.state("t")
    hosts.kill(before.leader)
    produce(producer, [b"%d" % number for number in range(50, 100)])
    after = hosts.state("t")
    assert after.leader != before.leader
    assert after.leader_epoch > before.leader_epoch
    for number, ends in enumerate(("commit", "abort", "commit")):
        transactional.begin_transaction()
        transactional.produce("t", b"%s %d" % (ends.encode(), number))
        if ends == "commit":
            transactional.commit_transaction(PATIENCE_SECONDS)
        else:
            transactional.flush(PATIENCE_SECONDS)
            transactional.abort_transaction(PATIENCE_SECONDS)
    rest = [b"%d" % number for number in range(50, 100)] + [b"commit 0", b"commit 2"]
    assert consume(hosts, 52) == rest, "the group goes on where it was"
    hosts.nodes[before.leader].start()
    hosts.wait_for_isr("t")


def test_without_etcd_records_are_taken_and_nobody_is_elected_afterwards(hosts):
    create(hosts, partitions=3)
    producer = producer_of(hosts)
    produce(producer, [b"before"])
    before = hosts.states()
    hosts.etcd.kill()
    ends = time.monotonic() + 2.5 * SESSION_MS / 1000
    sent = 1
    quick = producer_of(hosts, enable_idempotence=False, acks="1")
    while time.monotonic() < ends:
        produce(producer, [b"without"] * 10)
        produce(quick, [b"quick"] * 10)
        sent += 20
    hosts.etcd.start()
    hosts.until(lambda: hosts.members() == {1, 2, 3})
    produce(producer, [b"after"])
    assert len(consume(hosts, sent + 1)) == sent + 1
    known = {key: before[key] for key in before}
    assert {key: state for key, state in hosts.states().items() if key in known} == known
    logs = "".join(peer.log_text() for peer in hosts.nodes.values())
    assert "session in the metadata store is lost" not in logs
    assert "etcd does not renew this node's session" in logs


def test_a_node_that_dies_while_etcd_is_away_is_replaced_when_it_is_back(hosts):
    create(hosts)
    producer = producer_of(hosts)
    produce(producer, [b"before"])
    assert consume(hosts, 1) == [b"before"]
    leader = hosts.state("t").leader
    hosts.etcd.kill()
    hosts.kill(leader)
    hosts.etcd.start()
    hosts.until(lambda: hosts.state("t").leader not in (leader, -1))
    hosts.until(lambda: leader not in hosts.members())
    produce(producer, [b"after"])
    assert consume(hosts, 1) == [b"after"]


class Raw:
    """A connection to one node, on which requests are sent without waiting for answers."""

    def __init__(self, peer):
        address = Address(peer.host, peer.port)
        self._connection = BlockingConnection(address, ClientSettings(request_timeout_ms=60_000))

    def send(self, acks):
        records = build_batch([Record(value=b"acks %d" % acks, timestamp=1_700_000_000_000)])
        part = PartitionProduceData(index=0, records=records)
        topic = TopicProduceData(name="t", partition_data=[part])
        request = ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic])
        self._connection.send(request, ProduceResponse, highest=12)

    def close(self):
        self._connection.close()

    def code(self):
        """Return how the next request was answered."""
        (topic,) = self._connection.receive().responses
        return ErrorCode(topic.partition_responses[0].error_code)


def test_a_node_that_stood_still_acknowledges_nothing_as_the_leader_it_was(hosts):
    create(hosts)
    for _ in range(3):
        before = hosts.state("t")
        connections = [(Raw(hosts.nodes[before.leader]), acks) for acks in (1, -1) for _ in "123"]
        for raw, acks in connections:
            raw.send(acks)
            assert raw.code() is ErrorCode.NONE
        hosts.pause(before.leader)
        for raw, acks in connections:
            raw.send(acks)
        hosts.until(lambda known=before: hosts.state("t").leader not in (known.leader, -1))
        next_leader = Raw(hosts.nodes[hosts.state("t").leader])
        next_leader.send(-1)
        assert next_leader.code() is ErrorCode.NONE
        next_leader.close()
        hosts.resume(before.leader)
        for raw, acks in connections:
            code = raw.code()
            assert code is ErrorCode.NOT_LEADER_OR_FOLLOWER, f"acks={acks} was answered {code}"
            raw.close()
        hosts.wait_for_isr("t")
    assert len(consume(hosts, 3 * 7)) == 3 * 7


def refused(peer):
    """Return what a node says that does not start."""
    done = subprocess.run(
        peer.command(),
        env=peer.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
    )
    said = done.stderr.decode()
    assert done.returncode == 1, said
    assert "Traceback" not in said, said
    return said


def test_what_cannot_join_is_refused_with_a_clear_word(tmp_path):
    with Hosts(tmp_path, count=2) as hosts:
        first, second = hosts.nodes.values()
        # Another process with the id of one that is alive.
        twin = hosts.peer(1, [0, 0], "twin")
        said = refused(twin)
        assert "this node cannot join its cluster" in said
        assert (
            f"node 1 is registered already, by a process that serves at {first.bootstrap}" in said
        )
        # Data of a node of another cluster.
        second.stop()
        foreign = hosts.peer(2, [0, 0], "node-2", cluster="other")
        assert "/other knows no cluster yet" in refused(foreign)
        alone = hosts.peer(3, [0, 0], "alone", cluster="other")
        alone.start()
        assert "belongs to node 2 of cluster" in refused(foreign)
        alone.stop()
        # No etcd.
        hosts.etcd.kill()
        began = time.monotonic()
        said = refused(second)
        assert time.monotonic() - began < PATIENCE_SECONDS / 2
        assert "the metadata of the cluster test cannot be reached" in said
        assert f"no etcd answers at {hosts.etcd.endpoint}" in said
        hosts.etcd.start()
        second.start()


def test_an_etcd_from_an_old_backup_is_refused(hosts):
    create(hosts)
    hosts.etcd.kill()
    hosts.etcd.keep("early")
    hosts.etcd.start()
    leader = hosts.state("t").leader
    hosts.kill(leader)
    producer = producer_of(hosts)
    produce(producer, [b"in a newer leader epoch"])
    hosts.nodes[leader].start()
    hosts.wait_for_isr("t")
    hosts.etcd.kill()
    hosts.etcd.go_back("early")
    hosts.etcd.start()
    # Those that run notice that etcd is behind what it has said, and end.
    hosts.until(lambda: not any(peer.is_running() for peer in hosts.nodes.values()))
    for peer in hosts.nodes.values():
        assert "it was restored from a backup, or it is another one" in peer.log_text()
        peer.kill9()
    said = refused(hosts.nodes[leader])
    assert "the metadata does not know what this node has acted on" in said
    assert "put a newer backup of etcd back" in said
    # Of a version that did not stamp its directory.
    (hosts.directory / f"node-{leader}" / LINEAGE).unlink()
    said = refused(hosts.nodes[leader])
    assert "it is older than the data" in said
    assert "put a newer backup of etcd back" in said


def test_a_node_of_another_history_does_not_mix_its_records_in(tmp_path):
    """Both histories have the same leader epoch, and etcd's revision has passed what it was."""
    options = {"min.insync.replicas": 1, "offsets.topic.replication.factor": 2}
    with Hosts(tmp_path, count=2, **options) as hosts:
        admin = AdminClient({"bootstrap.servers": hosts.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("t", 1, 2)])["t"].result(PATIENCE_SECONDS)
        hosts.wait_for_isr("t", count=2)
        hosts.until(hosts.is_stamped)
        hosts.etcd.kill()
        hosts.etcd.keep("early")
        hosts.etcd.start()
        first = hosts.state("t").leader
        (second,) = hosts.nodes.keys() - {first}
        producer = producer_of(hosts)
        produce(producer, [b"before"])
        hosts.kill(first)
        hosts.until(lambda: hosts.state("t").isr == (second,))
        produce(producer, [b"in one history %d" % number for number in range(5)])
        one = hosts.state("t")
        hosts.kill(second)
        hosts.etcd.kill()
        hosts.etcd.go_back("early")
        hosts.etcd.start()
        hosts.nodes[first].start()
        hosts.until(lambda: hosts.state("t").isr == (first,))
        produce(producer_of(hosts), [b"in the other"] * 2)
        while hosts.revision() < 1000:  # As in an etcd that others use, or after --bump-revision.
            hosts.put("unrelated")
        other = hosts.state("t")
        assert (one.leader, other.leader) == (second, first)
        assert one.leader_epoch == other.leader_epoch, "no epoch shows it"
        said = refused(hosts.nodes[second])
        assert "the metadata does not know what this node has acted on" in said
        assert "put a newer backup of etcd back" in said
        given_up = re.search(r"with an empty directory and -D (\S+)=([\w-]{22}):", said)
        assert hosts.members() == {first}
        shutil.rmtree(tmp_path / f"node-{second}")
        hosts.nodes[second].options[given_up[1]] = given_up[2]
        hosts.nodes[second].start()
        hosts.wait_for_isr("t", count=2)
        assert consume(hosts, 3) == [b"before", b"in the other", b"in the other"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--cluster", "h1/x"], "does not begin with etcd://"),
        (["--cluster", "etcd://h1"], "the cluster's name comes behind the last host"),
        (["--cluster", "etcd://10.0.0.1/x"], "other hosts cannot reach this one at 127.0.0.1"),
        (["--cluster", "etcd://127.0.0.1/x", "--listen", "0.0.0.0"], "--advertise HOST"),
        (["--cluster", "etcd://127.0.0.1/x", "--memory"], "--memory and --cluster exclude"),
        (["--cluster", "etcd://127.0.0.1/x", "--nodes", "2"], "--nodes and --cluster exclude"),
        (["--cluster", "etcd://127.0.0.1/x", "--node-id", "-1"], "is not a number"),
        (["--cluster", "etcd://127.0.0.1/x", "--port", "0", "--advertise", "h"], "which port"),
        (["--cluster", "etcd://127.0.0.1/x", "-D", "ottla.etcd.user=me"], "go together"),
        (["--cluster", "etcd://127.0.0.1/x", "-D", "ottla.etcd.ca.file=f"], "etcds://"),
        (["--cluster", "etcds://127.0.0.1/x", "-D", "ottla.etcd.ca.file=/no"], "cannot read /no"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(arguments, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = run_command("127.0.0.1:1", "serve", *arguments)
    assert code == 2, err
    assert says in err
    assert not any(tmp_path.iterdir())
