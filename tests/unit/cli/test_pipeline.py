"""``ottla pipeline`` before any Spark starts."""

import json
import subprocess
import sys
from argparse import Namespace

import pytest

pytest.importorskip("yaml", reason="extra 'pipelines' is not installed")

from ottla.cli.failure import Failure
from ottla.cli.main import command_line
from ottla.cli.output import Format, RowWriter
from ottla.cli.own_broker import OwnBroker
from ottla.cli.pipeline_run import Printer, _refresh
from ottla.spark.pipelines.graph import Graph, Kind, Node
from ottla.spark.pipelines.running import Event, Progress
from tests.output_schemas import check


@pytest.fixture
def ottla(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        try:
            command_line(["pipeline", *arguments])
            code = 0
        except SystemExit as end:
            code = end.code
        return code, *capsys.readouterr()

    return run


def test_a_project_is_made_and_not_overwritten(ottla, tmp_path):
    code, out, err = ottla("init", "shop")
    assert code == 0
    assert "shop/spark-pipeline.yml" in out
    assert "ottla pipeline explain" in err
    assert (tmp_path / "shop" / "transformations" / "totals.sql").exists()
    code, _, err = ottla("init", "shop")
    assert (code, err.splitlines()[0]) == (2, "error: shop is not empty")


def test_the_next_command_can_be_pasted_whatever_the_directory_is_called(ottla):
    code, _, err = ottla("init", "Ann's shop; rm x")
    assert code == 0
    assert """next: cd 'Ann'"'"'s shop; rm x'; ottla pipeline explain""" in err


def test_templates_are_listed(ottla):
    code, out, _ = ottla("init", "--list")
    assert code == 0
    assert [line.split("\t")[0] for line in out.splitlines()] == [
        "name",
        "topic-to-topic",
        "topic-to-table",
        "changes",
    ]
    code, out, _ = ottla("init", "--list", "-o", "json")
    check("pipeline init", json.loads(out))
    code, _, err = ottla("init", "x", "-t", "topic-to-tabel")
    assert (code, "did you mean topic-to-table?" in err) == (2, True)
    code, _, err = ottla("init", "x", "-t", "dance")
    assert code == 2
    assert "there are topic-to-topic" in err


@pytest.mark.parametrize("command", ["check", "explain", "run"])
def test_without_a_project_there_is_one_clear_error(ottla, command):
    code, _, err = ottla(command)
    assert code == 2
    assert "ottla pipeline init NAME makes a project" in err


def test_the_command_line_starts_without_spark():
    code = (
        "import sys; sys.argv = ['ottla', 'pipeline', 'init', '--list']\n"
        "from ottla.cli.main import command_line; command_line(sys.argv[1:])\n"
        "heavy = ('pyspark', 'pyarrow', 'grpc', 'asyncio')\n"
        "print(*[name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""


def test_ctrl_c_amid_a_call_of_spark_is_no_traceback():
    """py4j logs what breaks its wait for the JVM, a signal too."""
    code = (
        "import logging, os, signal\n"
        "from ottla.cli.pipeline import _guard\n"
        "def command():\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    except KeyboardInterrupt:\n"
        "        logging.exception('KeyboardInterrupt while sending command.')\n"
        "        raise\n"
        "_guard(command)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "stopped; the next run goes on from here\n"


def test_progress_as_people_read_it(capsys):
    printer = Printer(None)
    printer.event(Event(0, "f", "RUNNING", "Flow f is RUNNING."))
    printer.event(Event(0, "", "RUNNING", "Run is RUNNING."))
    printer.progress(Progress("f", 4, 12_000, 15_000.0, 1204, 310, 3 << 20, 0.8))
    printer.end("p", 1, 2.0)
    lines = [line.partition("  ")[2] for line in capsys.readouterr().out.splitlines()]
    assert lines[0].split() == ["f", "RUNNING"]
    assert [part.strip() for part in lines[1].split("  ")[-3:]] == [
        "batch 4: 12,000 rows in 0.8 s (15,000/s)", "lag 1,204", "state 310 rows 3 MiB",
    ]  # fmt: skip
    assert len(lines) == 3


@pytest.mark.parametrize("form", [each for each in Format if each is not Format.TABLE])
def test_progress_as_programs_read_it(capsys, form):
    with RowWriter(form) as writer:
        printer = Printer(writer)
        printer.event(Event(0, "f", "RUNNING", "Flow f is RUNNING."))
        printer.progress(Progress("f", 4, 12_000, 15_000.0, 1204, 310, 3 << 20, 0.8))
        printer.end("p", 1, 2.0)
    text = capsys.readouterr().out
    if form is Format.TSV:
        head, *lines = (line.split("\t") for line in text.splitlines())
        rows = [
            {name: each for name, each in zip(head, line, strict=True) if each} for line in lines
        ]
    elif form is Format.JSONL:
        rows = [json.loads(line) for line in text.splitlines()]
    else:  # JSON is YAML, too.
        from yaml import safe_load

        rows = safe_load(text)
    assert [row["type"] for row in rows] == ["event", "progress", "end"]
    assert [int(row.get("rows", 0)) for row in rows] == [0, 12_000, 12_000]
    if form is not Format.TSV:
        check("pipeline run", rows)


def test_a_broker_of_our_own_comes_and_goes(tmp_path, capsys):
    from ottla.client.blocking.connection import BlockingConnection
    from ottla.client.wire.errors import ConnectionFailed
    from ottla.client.wire.settings import Address, ClientSettings
    from tools.kafka_peer import free_port

    address = Address("127.0.0.1", free_port())
    with OwnBroker(f"127.0.0.1:{address.port}", tmp_path / "data"):
        BlockingConnection(address, ClientSettings()).close()
        with pytest.raises(Failure, match="did not start") as failed:
            OwnBroker(f"127.0.0.1:{address.port}", tmp_path / "other")
        assert "in use" in failed.value.why
    with pytest.raises(ConnectionFailed):
        BlockingConnection(address, ClientSettings())


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("full_refresh", "did you mean totals?"),
        ("refresh", "did you mean totals?"),
    ],
)
def test_a_name_that_no_table_has_is_refused(option, told):
    """It ran nothing and said "done"."""
    graph = Graph("p")
    graph.add(Node("totals", Kind.STREAMING_TABLE))
    graph.add(Node("out", Kind.SINK))
    none = {"full_refresh": None, "refresh": None, "full_refresh_all": False}
    with pytest.raises(Failure) as refused:
        _refresh(Namespace(**none | {option: "total"}), graph, is_first=True)
    assert refused.value.fix == told
    with pytest.raises(Failure, match="no table out"):
        _refresh(Namespace(**none | {option: "totals,out"}), graph, is_first=True)
    _refresh(Namespace(**none | {option: "db.totals"}), graph, is_first=True)
