"""What every command prints with ``-o json``, against the schemas of docs/output-schemas.json.

The commands are those of the parsers: one that is new needs a schema, and a line here.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from ottla.cli import cluster_moves, txn_partitions
from ottla.cli.cluster import _troubles
from ottla.cli.moving_plan import drained
from ottla.client.asyncio.partitions import ActiveProducer
from ottla.client.wire.view import NO_LEADER, PartitionView, TopicView
from ottla.errors import ErrorCode
from ottla.ids import NULL_TOPIC_ID, TopicPartition
from tests.cli_tasks import open_transaction, until
from tests.command_server import CommandServer
from tests.e2e.test_cli_bad_input import EVERY
from tests.output_schemas import SCHEMAS, check
from tools.ottla_peer import OttlaPeer

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("output schemas")]
FORMS = {
    name: set(output.choices)
    for name, parser in EVERY.items()
    for output in parser._actions
    if "--output" in output.option_strings
}
OPTIONS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
}
ROWS = {"table", "json", "jsonl", "yaml", "tsv"}
ELSEWHERE = {"pipeline init", "pipeline check", "pipeline explain", "pipeline run"}
"""Spark's tests hold these to their schemas."""
EMPTY = {"cluster balance", "cluster drain", "cluster health", "topic move", "txn hanging"}
"""A node alone has nothing of these; their rows are made by hand below."""
LINES = {
    "topic list": ["--internal"],
    "topic describe": ["t"],
    "topic size": ["t"],
    "topic count": ["t"],
    "topic trim": ["t", "--to", "1", "--yes"],
    "topic copy": ["t", "copied", "--group", "g"],
    "topic diff": ["t", "u"],
    "topic move": ["u", "--log-dir", "OTHER", "--broker", "1"],
    "topic elect": ["t"],
    "consume": ["t", "u"],
    "group list": [],
    "group describe": ["g"],
    "group reset": ["g", "--to", "earliest", "--topic", "t", "--yes"],
    "group watch": ["g", "-n", "1"],
    "cluster info": [],
    "cluster brokers": [],
    "cluster status": [],
    "cluster apis": [],
    "cluster logdirs": [],
    "cluster health": [],
    "cluster balance": [],
    "config get": ["topic/t"],
    "config explain": ["topic/t", "retention.ms"],
    "config diff": ["topic/t", "topic/u"],
    "txn list": [],
    "txn describe": ["open"],
    "txn ages": [],
    "txn producers": ["t"],
    "txn hanging": ["--open-for", "1ms"],
    "user list": [],
    "quota list": [],
    "acl list": [],
    "bench produce": ["--for", "50ms"],
    "bench consume": ["--for", "50ms"],
    "bench latency": ["--for", "50ms", "--against", "PLACE"],
    "log dump": ["SEGMENT", "--deep"],
    "log verify": ["DIRECTORY"],
    "doctor": ["PLACE"],
    "profile list": [],
    "profile show": ["p"],
    "version": [],
}
"""What stands behind each command."""
MORE = {
    "group describe": [["--all"], ["live"]],
    "topic describe": [["__consumer_offsets"]],
    "config get": [["broker/1", "--all"]],
    "doctor": [["DIRECTORY"]],
    "topic size": [[]],
    "topic move": [[]],
    "consume": [["t", "--decode", "json", "--decode", "key=int32"]],
}
"""Other lines, with another answer."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Return what runs commands, by (words, more): a broker that has some of everything."""
    one, two = (tmp_path_factory.mktemp("schemas") / each for each in ("one", "two"))
    with OttlaPeer(Path(f"{one},{two}"), OPTIONS) as peer, CommandServer() as server:
        peer.start()
        environment = {"OTTLA_BOOTSTRAP": peer.bootstrap}
        server.directory.joinpath("password").write_text("secret\n")

        def run(*words, stdin=b"", codes=(0,)):
            said = server.run(*words, stdin=stdin, environment=environment)
            assert said.code in codes, (words, said)
            return said

        for topic, time, text in (("t", "1d", b'{"a": 1}\nno json\n'), ("u", "2d", b"\xff\n")):
            run("topic", "create", topic, "-c", f"retention.ms={time}")
            run("produce", topic, "-q", "-k", "k", "-H", "h=1", stdin=text)
        run("consume", "t", "-g", "g")
        run("user", "set", "ann", "--password-file", "password")
        run("quota", "set", "producer_byte_rate=1MiB", "--user", "ann")
        run("acl", "add", "--allow-principal", "User:ann", "--operation", "read", "--topic", "t")
        run("profile", "set", "p", "-b", peer.bootstrap)
        words = [sys.executable, "-m", "ottla", "consume", "t", "-g", "live", "--tail"]
        member = subprocess.Popen(
            words, stdout=subprocess.DEVNULL, env={**os.environ, **environment}
        )
        until(lambda: '"Stable"' in run("group", "list", "-o", "json").out)
        producer = open_transaction(peer, "t", "open")
        own = one if (one / "t-0").exists() else two
        places = {
            "PLACE": peer.bootstrap,
            "DIRECTORY": str(own),
            "OTHER": str(two if (one / "u-0").exists() else one),
            "SEGMENT": str(own / "t-0" / "00000000000000000000.log"),
        }
        yield lambda words: run(*(places.get(each, each) for each in words), codes=(0, 1, 3))
        producer.abort_transaction(30)
        member.send_signal(signal.SIGTERM)
        member.wait(60)


def test_every_command_has_a_schema_and_a_line():
    told = {name for name, forms in FORMS.items() if forms & {"json", "jsonl"}}
    assert told - ELSEWHERE - {"cluster drain"} == LINES.keys()  # Nobody could take its replicas.
    assert SCHEMAS["$defs"].keys() - {"bytes", "error", "group"} == told
    jsonschema.Draft202012Validator.check_schema(SCHEMAS)


def test_what_lists_or_describes_has_every_form():
    odd = {name: forms for name, forms in FORMS.items() if forms != ROWS}
    assert {name: forms - ROWS for name, forms in odd.items()} == {
        "pipeline check": {"text"},
        "pipeline run": {"text"},
        "pipeline explain": {"tree", "mermaid", "dot", "svg"},
    }
    assert all(forms >= ROWS for forms in FORMS.values())


@pytest.mark.parametrize("name", sorted(LINES))
def test_json_is_as_its_schema_says(cluster, name):
    for line in [LINES[name], *MORE.get(name, [])]:
        said = cluster([*name.split(), *line, "-o", "json"])
        value = json.loads(said.out)
        check(name, value)
        assert value not in ([], {}) or name in EMPTY, f"nothing of {name} was tried"


def test_records_are_the_same_in_every_form(cluster):
    yaml = pytest.importorskip("yaml", reason="extra 'pipelines' is not installed")
    cluster(["topic", "create", "forms", "-p", "1"])
    for text in ('{"a": "\\t"}', "no json"):
        cluster(["produce", "forms", "-k", "k", "-H", "h=1", "--template", text, "-n", "1"])

    def consume(form, *more):
        return cluster(["consume", "forms", "-o", form, *more]).out

    rows = json.loads(consume("json"))
    assert yaml.safe_load(consume("yaml")) == rows
    assert [json.loads(line) for line in consume("jsonl").splitlines()] == rows
    head, *lines = consume("tsv").splitlines()
    assert head.split("\t") == [*rows[0]]
    assert [line.split("\t")[2:6] for line in lines] == [
        [str(row["offset"]), str(row["timestamp"]), "k", row["value"].replace("\\", "\\\\")]
        for row in rows
    ]
    assert consume("tsv", "--no-header").splitlines() == lines
    assert [line.endswith(f"k=k  {row['value']}") for line, row in zip(
        consume("table").splitlines(), rows, strict=True
    )] == [True, True]  # fmt: skip
    nothing = ("--to", "earliest")
    assert [consume(form, *nothing) for form in ("json", "jsonl", "yaml", "table")] == [
        "[]\n", "", "[]\n", "",
    ]  # fmt: skip
    marked = consume("tsv", "--decode", "json").splitlines()
    assert marked[0].endswith("\theaders\tundecoded")
    assert ["value=not json" in line for line in marked[1:]] == [False, True]


def test_an_error_is_as_its_schema_says(cluster):
    said = cluster(["topic", "describe", "t", "-b", "127.0.0.1:1", "-o", "json"])
    check("error", json.loads(said.err))


def test_rows_that_a_node_alone_has_not():
    views = {0: PartitionView(0, NO_LEADER, 0, (1, 2), (2,), ErrorCode.NONE)}
    topic = TopicView("t", NULL_TOPIC_ID, False, ErrorCode.NONE, views)
    check("cluster health", _troubles(topic))
    moves = drained({("t", 0): (1,)}, [1], [1, 2], {})
    assert moves
    check("cluster drain", [cluster_moves._row(each) for each in moves])
    check("cluster balance", [cluster_moves._row(each) for each in moves])
    found = txn_partitions.Found(TopicPartition("t", 0), ActiveProducer(1, 0, 0, 9, -1, 5))
    check("txn hanging", [{**txn_partitions._row(found, 1000), "why": "nobody knows it"}])
