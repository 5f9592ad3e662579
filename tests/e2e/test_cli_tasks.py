"""Everyday tasks, each by one `ottla` command, against an Ottla and an Apache Kafka: equal answers.

Each task runs its commands against both and says what must come; what may differ (ids, ports,
directories, times of a broker's clock) is left out by name. The numbers are those of the review
that listed the tasks. Two have no test here: 40, who is connected and talks most, which no request
of Kafka's protocol tells; and 42, pipelines, which have Spark's tests (``test_pipeline.py``).
"""

import json
import re
import time
import uuid
from pathlib import Path

import msgpack
import pytest

from tests.command_server import CommandServer
from tools.ottla_peer import OttlaPeer

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("tasks of the command line")]
OPTIONS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:root",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        ' user_root="root-secret" user_ann="ann-secret";'
    ),
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "log.retention.check.interval.ms": 86_400_000,
}
TIME = 1_700_000_000_000
"""2023-11-14T22:13:20Z"""


@pytest.fixture(scope="module")
def peers(kafka_libs, tmp_path_factory):
    """An Ottla and a Kafka, both with an authorizer, users, and two log directories."""
    from tools.kafka_peer import KafkaPeer

    made = {}
    base = tmp_path_factory.mktemp("tasks")
    for name, kind in (("ottla", OttlaPeer), ("kafka", KafkaPeer)):
        data = base / name
        made[name] = _peer(kind, data)
    with made["kafka"], made["ottla"]:
        for peer in made.values():
            peer.start()
        yield made


def _peer(kind, data):
    both = f"{data},{data}-2"
    if kind is OttlaPeer:
        return kind(Path(both), OPTIONS, protocols=("SASL_PLAINTEXT",))
    return kind(data, OPTIONS | {"log.dirs": both}, protocols=("SASL_PLAINTEXT",))


@pytest.fixture(scope="module")
def server():
    with CommandServer() as running:
        yield running


class Asked:
    """One of the clusters, and the commands that are run against it."""

    def __init__(self, kind, peer, server):
        self.kind = kind
        self.peer = peer
        self.server = server
        self.names = {}

    def name(self, word):
        """A name of the test's own that is the same for both: ``word`` and a suffix."""
        return self.names[word]

    def run(self, line, *more, code=0, stdin=b"", bootstrap=None):
        """Run the words of ``line`` and then ``more``; return what standard output got."""
        text = stdin.encode() if isinstance(stdin, str) else stdin
        environment = {"OTTLA_BOOTSTRAP": bootstrap or self.peer.bootstrap}
        said = self.server.run(*line.split(), *more, stdin=text, environment=environment)
        assert said.code == code, (self.kind, line, said)
        self.err = said.err
        return said.out

    def shown(self, line, *more, **options):
        """Run a command; return what it says as JSON."""
        return json.loads(self.run(line, *more, "-o", "json", **options))


def assert_same(ours, theirs):
    """Compare answers piece by piece, so that a failure names the piece."""
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        assert len(ours) == len(theirs), (ours, theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other)
    else:
        assert ours == theirs


@pytest.fixture
def both(peers, server):
    """Do the same with both clusters: ``both(task)`` returns the one answer of ``task(asked)``."""

    def do(task):
        answers = {kind: task(Asked(kind, peer, server)) for kind, peer in peers.items()}
        assert_same(answers["ottla"], answers["kafka"])
        return answers["ottla"]

    return do


@pytest.fixture
def name():
    return f"t{uuid.uuid4().hex[:8]}"


def without(row, *keys):
    return {key: value for key, value in row.items() if key not in keys}


def lines_of(text):
    return sorted(text.splitlines())


def made(asked, topic, partitions=1, records=()):
    """Make a topic with records: (partition, key, value, time after TIME in seconds)."""
    asked.run(f"topic create {topic} -p {partitions}")
    lines = [
        {"partition": partition, "key": key, "value": value, "timestamp": TIME + 1000 * seconds}
        for partition, key, value, seconds in records
    ]
    if lines:
        asked.run(f"produce {topic} --jsonl -q", stdin="\n".join(map(json.dumps, lines)))


def until(condition):
    """Return when ``condition()`` holds."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def open_transaction(peer, topic, transactional_id):
    """Leave a transaction open behind one record in the topic's partition 0."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": peer.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"held", partition=0)
    assert producer.flush(30) == 0
    return producer


def test_01_topics_are_made_listed_changed_and_deleted(both, name):
    def task(asked):
        asked.run(f"topic create {name} -p 3 -c retention.ms=1d")
        asked.run(f"topic create {name}", code=6)
        asked.run(f"topic alter {name} -c retention.ms=2d -c cleanup.policy=compact")
        told = asked.shown(f"topic describe {name}")
        rows = {row["name"]: row for row in asked.shown("topic list")}
        asked.run(f"topic delete {name} --dry-run")
        asked.run(f"topic delete {name}x --yes", code=5)
        near = asked.err
        asked.run(f"topic delete {name} --yes")
        asked.run(f"topic describe {name}", code=5)
        return without(told, "topic_id"), without(rows[name], "topic_id"), near

    told, row, near = both(task)
    assert row == {"name": name, "partitions": 3, "replicas": 1, "internal": False}
    assert [each["partition"] for each in told["partitions"]] == [0, 1, 2]
    assert told["configs"] == {
        "retention.ms": "172800000",
        "cleanup.policy": "compact",
    }
    assert f"did you mean {name}?" in near


NUMBERS = [(n % 2, f"k{n}", f"v{n}", n) for n in range(20)]


def test_02_the_last_of_each_partition(both, name):
    def task(asked):
        made(asked, name, 2, NUMBERS)
        return lines_of(asked.run(f"consume {name} --from -3 -f", "%p %o %v\\n"))

    assert both(task) == ["0 7 v14", "0 8 v16", "0 9 v18", "1 7 v15", "1 8 v17", "1 9 v19"]


def test_03_from_a_time_on(both, name):
    def task(asked):
        made(asked, name, 2, NUMBERS)
        asked.run(f"produce {name} -q -p 0", stdin="now\n")
        wanted = f"consume {name} -f %v\\n --from"
        return (
            lines_of(asked.run(wanted, f"@{TIME + 17_000}")),
            lines_of(asked.run(wanted, "2023-11-14T22:13:38+00:00")),
            lines_of(asked.run(wanted, "-1h")),
        )

    assert both(task) == (["now", "v17", "v18", "v19"], ["now", "v18", "v19"], ["now"])


def test_04_between_two_times_or_offsets(both, name):
    def task(asked):
        made(asked, name, 2, NUMBERS)
        wanted = f"consume {name} -f %v\\n --from"
        return (
            lines_of(asked.run(wanted, f"@{TIME + 4000}", "--to", f"@{TIME + 7000}")),
            lines_of(asked.run(wanted, "3", "--to", "4")),
        )

    assert both(task) == (["v4", "v5", "v6"], ["v6", "v7"])


def test_05_a_file_with_keys(both, name):
    def task(asked):
        made(asked, name, 3)
        asked.run(f"produce {name} -q -f", "%k\\t%v", stdin="ann\t1\nbob\t2\nann\t3\n")
        return lines_of(asked.run(f"consume {name} -f", "%p %o %k %v\\n"))

    answer = both(task)
    assert [line.split()[2:] for line in answer if " ann " in line] == [["ann", "1"], ["ann", "3"]]
    assert len(answer) == 3


def test_06_a_header_and_a_partition_per_record(both, name):
    def task(asked):
        made(asked, name, 3)
        lines = "2\ttrace=7,a=b\tk\tv\n0\t\tk\tw\n"
        asked.run(f"produce {name} -q -f", "%p\\t%h\\t%k\\t%v", stdin=lines)
        return lines_of(asked.run(f"consume {name} -f", "%p %v %h\\n"))

    assert both(task) == ["0 w ", "2 v trace=7,a=b"]


BYTES = bytes(range(256)) * 3


def test_07_binary_values_and_whole_files(both, name):
    def task(asked):
        made(asked, name)
        file = asked.server.directory / f"{name}.bin"
        file.write_bytes(BYTES)
        asked.run(f"produce {name} -q -k cat --file {file}")
        said = asked.server.start(
            *("consume", name, "-f", "%v"),
            environment={"OTTLA_BOOTSTRAP": asked.peer.bootstrap},
        )
        assert asked.server.finish(said).code == 0
        return said.out.read_bytes()

    assert both(task) == BYTES


def test_08_a_tombstone(both, name):
    def task(asked):
        made(asked, name, 1, [(0, "42", "there", 0)])
        asked.run(f"produce {name} -q -k 42 --tombstone")
        return [(row["key"], row["value"]) for row in asked.shown(f"consume {name}")]

    assert both(task) == [("42", "there"), ("42", None)]


def test_09_a_topic_is_copied_exactly_also_between_clusters(both, peers, name):
    others = {"ottla": "kafka", "kafka": "ottla"}
    records = [
        {"partition": 1, "timestamp": TIME, "key": {"base64": "/wA="}, "value": {"base64": "/g=="}},
        {"partition": 0, "timestamp": TIME + 1, "value": None, "headers": [["a", "1"], ["a", "2"]]},
        {"partition": 0, "timestamp": TIME + 2, "key": "", "value": "", "headers": [["b", None]]},
    ]

    def task(asked):
        made(asked, name, 2)
        asked.run(f"produce {name} --jsonl -q", stdin="\n".join(map(json.dumps, records)))
        other = peers[others[asked.kind]].bootstrap
        copied = f"{name}-of-{asked.kind}"
        asked.run(f"topic copy {name} {name}-copy")
        asked.run(f"topic copy {name} {copied} --other-bootstrap {other}")
        digests = asked.shown(f"topic diff {name} {name}-copy")
        asked.run(f"topic diff {name} {copied} --other-bootstrap {other}")
        return digests

    rows = both(task)
    assert [row["second_records"] for row in rows] == [2, 1]


def test_10_several_topics_and_a_pattern(both, name):
    def task(asked):
        for each in "abc":
            made(asked, f"{name}.{each}", 1, [(0, None, each, 0)])
        several = asked.run(f"consume {name}.a {name}.c -f", "%t %v\\n")
        return lines_of(several), lines_of(asked.run("consume -f", "%v\\n", "--regex", f"{name}.*"))

    assert both(task) == ([f"{name}.a a", f"{name}.c c"], ["a", "b", "c"])


def test_11_json_inside_of_json(both, name):
    def task(asked):
        made(asked, name, 1, [(0, "k", '{"total": 12.5, "of": [1]}', 0), (0, "k", "no json", 1)])
        return [row["value"] for row in asked.shown(f"consume {name} --decode json")]

    assert both(task) == [{"total": 12.5, "of": [1]}, "no json"]


def test_12_finding_by_key_or_content(both, name):
    def task(asked):
        values = [(0, f"k{n}", json.dumps({"total": n, "note": f"n{n}"}), n) for n in range(50)]
        made(asked, name, 1, values)
        found = asked.run(f"consume {name} -n 2 -f %k\\n -w", "value.total > 40")
        progress = asked.err
        return (
            found.split(),
            re.sub(r"read \d+ of", "read N of", progress),
            asked.run(f"consume {name} -f %o\\n -w", "key = k7").split(),
            asked.run(f"consume {name} -f %o\\n -w", "value contains n33").split(),
        )

    assert both(task) == (["k41", "k42"], "read N of 50, found 2\n", ["7"], ["33"])


def test_13_what_bytes_mean(both, name):
    def task(asked):
        made(asked, name)
        file = asked.server.directory / f"{name}.msgpack"
        file.write_bytes(msgpack.packb({"total": 3, "tags": ["a"]}))
        asked.run(f"produce {name} -q --file {file} -k 0007")
        rows = asked.shown(f"consume {name} --decode msgpack --decode key=int32")
        return [(row["key"], row["value"]) for row in rows]

    assert both(task) == [(0x30303037, {"total": 3, "tags": ["a"]})]


def test_14_records_are_counted_not_offsets(both, name):
    def task(asked):
        made(asked, name, 2, NUMBERS)
        open_transaction(asked.peer, name, f"{name}-x").abort_transaction(30)
        return (
            asked.shown(f"topic count {name}"),
            asked.shown(f"topic count {name}:1 --from 4")[0]["records"],
        )

    rows, some = both(task)
    assert [(row["records"], row["offsets"]) for row in rows] == [(10, 12), (10, 10)]
    assert some == 6


def test_15_sizes_by_topic_and_partition(both, name):
    def task(asked):
        made(asked, name, 2, NUMBERS)
        sizes = asked.shown(f"topic size {name}")
        (row,) = [row for row in asked.shown("topic size") if row["topic"] == name]
        dirs = asked.shown("cluster logdirs")
        return [without(each, "log_dir") for each in sizes], row, len(dirs)

    replicas, row, dir_count = both(task)
    assert dir_count == 2
    assert sum(each["size_bytes"] for each in replicas) == row["size_bytes"] > 300


def test_16_a_groups_members_and_lag(both, name):
    def task(asked):
        made(asked, name, 2, NUMBERS)
        asked.run(f"group reset {name}-g --to latest --topic {name}:0 --yes")
        asked.run(f"consume {name} -g {name}-g -n 5")
        told = asked.shown(f"group describe {name}-g")
        return without(told, "coordinator", "type", "assignor", "partitions"), told["lag"]

    told, lag = both(task)
    assert (told["state"], told["members"], lag) == ("Empty", [], 5)


def test_17_watching_a_group(both, name):
    def task(asked):
        made(asked, name, 2, NUMBERS)
        asked.run(f"group reset {name}-g --to 4 --topic {name} --yes")
        out = asked.run(f"group watch {name}-g -n 2 --every 100ms -o jsonl")
        return [(row["lag"], row["empty_in_ms"]) for row in map(json.loads, out.splitlines())]

    assert both(task) == [(12, None), (12, None)]


def test_18_the_lag_of_all_groups(both, name):
    def task(asked):
        made(asked, name, 2, NUMBERS)
        for each in "ab":
            asked.run(f"group reset {name}-{each} --to 9 --topic {name} --yes")
        rows = asked.shown("group describe --all")
        return {row["group"]: row["lag"] for row in rows if row["group"].startswith(name)}

    assert both(task) == {f"{name}-a": 2, f"{name}-b": 2}


def test_19_offsets_are_reset_to_a_time_or_a_place(both, name):
    def task(asked):
        made(asked, name, 2, NUMBERS)
        group = f"group reset {name}-g --topic {name}"
        asked.run(f"{group} --to latest --yes")
        planned = asked.shown(f"{group} --to @{TIME + 7000} --dry-run")
        asked.run(f"{group} --to -2 --yes")
        return planned, asked.shown(f"group describe {name}-g")["lag"]

    planned, lag = both(task)
    assert [(row["old"], row["new"]) for row in planned] == [(10, 4), (10, 3)]
    assert lag == 4


def test_20_offsets_are_shifted_read_from_a_file_and_deleted(both, name):
    def task(asked):
        made(asked, name, 2, NUMBERS)
        file = asked.server.directory / f"{name}.csv"
        file.write_text(f"{name},0,6\n{name},1,2\n")
        asked.run(f"group reset {name}-g --from-file {file} --yes")
        shifted = asked.shown(f"group reset {name}-g --shift -3 --yes")
        asked.run(f"group offsets delete {name}-g {name}:1 --yes")
        left = asked.shown(f"group describe {name}-g")["partitions"]
        return shifted, [(row["partition"], row["committed"]) for row in left]

    shifted, left = both(task)
    assert [(row["old"], row["new"]) for row in shifted] == [(6, 3), (2, 0)]
    assert left == [(0, 3)]


def test_21_open_transactions_are_found_and_aborted(both, name):
    def task(asked):
        made(asked, name, 1, NUMBERS[:1])
        producer = open_transaction(asked.peer, name, f"{name}-x")
        (row,) = [row for row in asked.shown("txn ages") if row["transactional_id"] == f"{name}-x"]
        stable = asked.shown(f"topic describe {name}")["partitions"][0]
        asked.run(f"txn abort {name}-x --yes")
        del producer
        rows = asked.shown("txn list")
        (after,) = [row for row in rows if row["transactional_id"] == f"{name}-x"]
        held = stable["stable"], stable["end"]
        return (
            row["partitions"],
            held,
            after["state"],
            asked.run(f"consume {name} --read-committed"),
        )

    partitions, held, after, read = both(task)
    assert (held, after, read) == ((1, 2), "Empty", "v0\n")
    assert name in json.dumps(partitions)


def test_22_producers_of_a_partition_and_hanging_transactions(both, name):
    def task(asked):
        made(asked, name, 1, NUMBERS[:1])
        producer = open_transaction(asked.peer, name, f"{name}-x")
        rows = asked.shown(f"txn producers {name}")
        asked.run(f"txn hanging {name}")  # It is known to its coordinator: it does not hang.
        asked.run(f"txn abort {name}-x --yes")
        del producer
        return sorted(
            (row["epoch"], row["last_sequence"], row["open_since_offset"] or -1) for row in rows
        )

    assert both(task) == [(0, 0, -1), (0, 0, 1)]


def test_23_a_topics_config_with_source_and_default(both, name):
    def task(asked):
        asked.run(f"topic create {name} -c retention.ms=1d")
        rows = asked.shown(f"config get topic/{name} --all")
        # Ottla flushes each message, and says so; Kafka's format sets the other for the cluster.
        others = ("flush.messages", "min.insync.replicas")
        everything = [row for row in rows if row["key"] not in others]
        told = asked.shown(f"config explain topic/{name} retention.ms")
        return everything, asked.shown(f"config get topic/{name}"), without(told, "documentation")

    everything, own, told = both(task)
    assert [row["key"] for row in own] == ["retention.ms"]
    assert (told["value"], told["source"], told["type"]) == ("86400000", "topic", "long")
    assert {row["source"] for row in everything} == {"default", "topic"}


def test_24_configs_of_brokers_the_cluster_and_groups(both, name):
    def task(asked):
        asked.run("config set cluster log.cleaner.backoff.ms=20s")
        asked.run("config set broker/1 log.cleaner.backoff.ms=25s")
        told = asked.shown("config explain broker/1 log.cleaner.backoff.ms")
        for each in ("broker/1", "cluster"):
            asked.run(f"config unset {each} log.cleaner.backoff.ms")
        asked.run(f"config set group/{name} consumer.session.timeout.ms=50s")
        return told["layers"], asked.shown(f"config get group/{name}")

    layers, group = both(task)
    assert [(row["source"], row["value"]) for row in layers] == [
        ("broker", "25000"),
        ("cluster", "20000"),
        ("default", "15000"),
    ]
    assert [(row["key"], row["value"]) for row in group] == [
        ("consumer.session.timeout.ms", "50000")
    ]


def test_25_the_cluster_and_its_brokers(both):
    def task(asked):
        told = asked.shown("cluster info")
        (broker,) = asked.shown("cluster brokers")
        addressed = f"{broker['host']}:{broker['port']}" == asked.peer.bootstrap
        is_led_here = broker["leads"] == broker["replicas"] == told["partitions"]
        return told["brokers"], told["controller_id"], broker["broker_id"], addressed, is_led_here

    assert both(task) == (1, 1, 1, True, True)


def test_26_api_versions(both):
    answers = {}

    def task(asked):
        answers[asked.kind] = {
            row["api"]: (row["first"], row["last"]) for row in asked.shown("cluster apis")
        }
        return {api: answers[asked.kind][api] for api in ("PRODUCE", "FETCH", "METADATA")}

    assert both(task) == {"PRODUCE": (0, 13), "FETCH": (4, 18), "METADATA": (0, 13)}
    shared = answers["ottla"].keys() & answers["kafka"].keys()
    assert {api: answers["ottla"][api] for api in shared} == {
        api: answers["kafka"][api] for api in shared
    }


def test_27_records_are_deleted_up_to_a_place(both, name):
    def task(asked):
        made(asked, name, 2, NUMBERS)
        rows = asked.shown(f"topic trim {name}:1 --to 6 --yes")
        return rows, len(asked.run(f"consume {name}").split())

    rows, left = both(task)
    assert rows == [{"topic": name, "partition": 1, "start": 0, "new_start": 6, "end": 10}]
    assert left == 14


def test_28_users_acls_and_quotas(both, name):
    def task(asked):
        secret = asked.server.directory / f"{name}.password"
        secret.write_text("secret\n")
        asked.run(f"user set {name} --password-file {secret}")
        asked.run(f"acl add --allow-principal User:{name} --operation read --topic {name}")
        asked.run(f"quota set producer_byte_rate=100000 --user {name}")
        rows = (
            [row for row in asked.shown("user list") if row["user"] == name],
            asked.shown(f"acl list --principal User:{name}"),
            asked.shown(f"quota list --user {name}"),
        )
        asked.run(f"user delete {name} --yes")
        asked.run(f"acl remove --allow-principal User:{name} --operation read --topic {name} --yes")
        asked.run(f"quota unset producer_byte_rate --user {name}")
        return rows

    users, acls, quotas = both(task)
    assert users == [{"user": name, "mechanism": "SCRAM-SHA-256", "iterations": 4096}]
    assert [(row["operation"], row["permission"], row["name"]) for row in acls] == [
        ("READ", "ALLOW", name)
    ]
    assert [(row["key"], row["bound"]) for row in quotas] == [("producer_byte_rate", 100_000)]


def test_29_replicas_and_leaders_are_moved(both, name):
    def task(asked):
        made(asked, name, 1, NUMBERS[:1])
        (before,) = asked.shown(f"topic size {name}")
        dirs = {row["log_dir"] for row in asked.shown("cluster logdirs")}
        (target,) = dirs - {before["log_dir"]}
        (plan,) = asked.shown(f"topic move {name} --log-dir {target}")
        assert (plan["from"], plan["to"]) == (before["log_dir"], target)

        def is_there():
            return [row["log_dir"] for row in asked.shown(f"topic size {name}")] == [target]

        until(is_there)
        answers = (
            asked.shown(f"topic move {name}:0 --brokers 1"),
            asked.shown("topic move"),
            asked.shown(f"topic elect {name}"),
        )
        asked.run(f"topic move {name} --brokers 1,7", code=5)
        asked.run(f"topic move {name} --cancel", code=1)
        return *answers, asked.err, asked.run(f"consume {name}")

    moved, under_way, elected, err, read = both(task)
    assert [(row["from"], row["to"], row["note"]) for row in moved] == [("1", "1", "")]
    assert (under_way, read) == ([], "v0\n")
    assert "NO_REASSIGNMENT_IN_PROGRESS" in err
    assert [(row["leader"], row["preferred"]) for row in elected] == [(1, 1)]
    assert [row["note"] for row in elected] == ["leads already"]


def test_30_logging_in_by_options_or_kafkas_own_file(both, peers, name):
    def task(asked):
        made(asked, name, 1, NUMBERS[:1])
        place = asked.peer.secured["SASL_PLAINTEXT"]
        file = asked.server.directory / f"{asked.kind}.properties"
        file.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nacks=all\n"
            "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule"
            ' required username="root" password="root-secret";\n'
        )
        by_file = asked.run(f"consume {name} --command-config {file} -b {place}")
        login = "-X security.protocol=SASL_PLAINTEXT -X sasl.mechanism=PLAIN"
        ann = f"{login} -X sasl.username=ann -X sasl.password"
        asked.run(f"consume {name} -b {place} {ann}=wrong", code=4)
        asked.run(f"topic delete {name} --yes -b {place} {ann}=ann-secret", code=4)
        return by_file, asked.err

    by_file, denied = both(task)
    assert by_file == "v0\n"
    assert "TOPIC_AUTHORIZATION_FAILED" in denied


def test_31_a_cluster_by_a_name(both, name):
    def task(asked):
        profile = f"{name}-{asked.kind}"
        asked.run(f"profile set {profile} -b {asked.peer.bootstrap}")
        made(asked, name, 1, NUMBERS[:1])
        said = asked.run(f"consume {name} --profile {profile}", bootstrap="127.0.0.1:1")
        return said, asked.run(f"profile delete {profile}")

    assert both(task) == ("v0\n", "")


def test_32_the_tab_key_knows_topics_and_groups(both, name):
    def task(asked):
        made(asked, f"{name}.events", 1, NUMBERS[:1])
        asked.run(f"group reset {name}-g --topic {name}.events --to 0 --yes")
        asked.run("completion bash")
        return (
            asked.run(f"__complete topic describe {name}"),
            asked.run(f"__complete group describe {name}"),
        )

    assert both(task) == (f"{name}.events\n", f"{name}-g\n")


@pytest.mark.parametrize("verb", ["produce", "consume", "latency"])
def test_33_a_load_test(both, verb):
    def task(asked):
        rows = asked.shown(f"bench {verb} --for 150ms")
        assert not [row for row in asked.shown("topic list") if "bench" in row["name"]]
        return [sorted(row) for row in rows], [row.get("errors", 0) for row in rows]

    ((columns,), errors) = both(task)
    assert len(columns) > 4
    assert errors == [0]


def test_34_a_healthy_cluster(both):
    def task(asked):
        troubles = asked.shown("cluster health")
        told = asked.shown(f"doctor {asked.peer.bootstrap} --no-logins")
        return troubles, told["brokers"], told["brokers_reached"]

    assert both(task) == ([], 1, 1)


def test_35_files_are_read_without_a_broker(both, peers, name):
    def task(asked):
        made(asked, name, 1, [(0, "k0", "v0", 0), (0, "k1", "v1", 1)])
        (replica,) = asked.shown(f"topic size {name}")
        directory = f"{replica['log_dir']}/{name}-0"
        file = f"{directory}/00000000000000000000.log"
        (batch,) = json.loads(asked.run(f"log dump {file} --deep -o json", bootstrap="127.0.0.1:1"))
        return without(batch, "crc", "producer_id")

    batch = both(task)
    assert (batch["is_valid"], batch["record_count"], batch["max_timestamp"]) == (
        *(True, 2),
        TIME + 1000,
    )
    assert [row["value"] for row in batch["records"]] == ["v0", "v1"]


def test_36_waiting_until_a_topic_is_there(both, name):
    def task(asked):
        environment = {"OTTLA_BOOTSTRAP": asked.peer.bootstrap}
        words = ("cluster", "wait", "--topic", name, "--for", "60s")
        waiting = asked.server.start(*words, environment=environment)
        asked.run(f"topic create {name}")
        return asked.server.finish(waiting).code, asked.run(f"cluster wait --topic {name}")

    assert both(task) == (0, "")


def test_37_scripts_get_codes_and_json(both, name):
    def task(asked):
        asked.run(f"topic describe {name} -o json", code=5)
        return json.loads(asked.err), asked.run(f"group describe {name} --no-header", code=5)

    told, out = both(task)
    assert told["error"]["code"] == "NOT_FOUND"
    assert out == ""


def test_38_test_data_at_a_rate(both, name):
    def task(asked):
        made(asked, name)
        template = ("--template", '{"id": %i}', "-k", "%i")
        asked.run(f"produce {name} -q -n 5 --rate 200", *template)
        return asked.run(f"consume {name} -f", "%k %v\\n")

    assert both(task) == "".join(f'{n} {{"id": {n}}}\n' for n in range(5))


def test_39_two_topics_are_compared(both, name):
    def task(asked):
        made(asked, f"{name}-a", 2, NUMBERS)
        made(asked, f"{name}-b", 2, [*NUMBERS[:-1], (1, "k19", "other", 19)])
        return json.loads(asked.run(f"topic diff {name}-a {name}-b -o json", code=1))

    same, other = both(task)
    assert same["first_digest"] == same["second_digest"]
    assert other["first_digest"] != other["second_digest"]
    assert "9" in other["note"]


def test_41_a_tail_goes_on_when_its_broker_comes_back(both, name):
    def task(asked):
        made(asked, name, 1, NUMBERS[:1])
        words = ("consume", name, "--tail", "--from", "earliest", "-n", "2")
        environment = {"OTTLA_BOOTSTRAP": asked.peer.bootstrap}
        tail = asked.server.start(*words, environment=environment)
        until(lambda: tail.out.exists() and tail.out.read_text() == "v0\n")
        if asked.kind == "ottla":
            asked.peer._asked_port = asked.peer.port
            asked.peer.secured.clear()  # It will have another port.
        asked.peer.kill9()
        asked.peer.start()
        asked.run(f"produce {name} -q", stdin="later\n")
        said = asked.server.finish(tail)
        assert said.code == 0, (asked.kind, said)
        return said.out

    assert both(task) == "v0\nlater\n"
