"""The commands as a person or a script types them, against a running ``ottla serve``."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tools.ottla_peer import OttlaPeer


@pytest.fixture
def ottla(ottla_server):
    """Run a command; returns (exit code, stdout, stderr)."""

    def run(*arguments, text="", bootstrap=None):
        done = subprocess.run(
            [sys.executable, "-m", "ottla", *arguments],
            input=text.encode(),
            capture_output=True,
            timeout=30,
            env=environment(bootstrap or ottla_server.bootstrap),
        )
        out, err = done.stdout.decode(), done.stderr.decode()
        assert "Traceback" not in err, err
        return done.returncode, out, err

    return run


def environment(bootstrap):
    peer = OttlaPeer.environment(OttlaPeer.__new__(OttlaPeer))
    return {**peer, "OTTLA_BOOTSTRAP": bootstrap}


@pytest.fixture
def topic(ottla, request):
    name = f"cli-{request.node.name.replace('[', '-').replace(']', '')}"[:200]
    assert ottla("topic", "create", name, "-p", "3", "-c", "retention.ms=7d")[0] == 0
    return name


def test_create_list_describe_delete(ottla, topic):
    code, out, _ = ottla("topic", "list", "-o", "json")
    row = next(each for each in json.loads(out) if each["name"] == topic)
    assert (row["partitions"], row["replicas"], row["internal"]) == (3, 1, False)
    code, out, _ = ottla("topic", "describe", topic, "-o", "json")
    described = json.loads(out)
    assert described["configs"] == {"retention.ms": "604800000"}
    assert [each["partition"] for each in described["partitions"]] == [0, 1, 2]
    assert ottla("topic", "add-partitions", topic, "2")[0] == 0
    assert len(ottla("topic", "describe", topic)[1].splitlines()) == 5
    code, _, err = ottla("topic", "delete", topic)
    assert (code, "--yes" in err) == (2, True)
    assert ottla("topic", "delete", topic, "--yes")[1] == f"deleted {topic}\n"
    assert ottla("topic", "describe", topic)[0] == 5


def test_alter(ottla, topic):
    def configs():
        return json.loads(ottla("topic", "describe", topic, "-o", "json")[1])["configs"]

    code, out, _ = ottla("topic", "alter", topic, "-c", "segment.ms=1h", "--dry-run")
    assert (code, out.splitlines()[0]) == (0, f"would alter {topic}")
    assert configs() == {"retention.ms": "604800000"}
    code, out, _ = ottla(
        *("topic", "alter", topic, "-c", "segment.ms=1h", "-c", "cleanup.policy=compact,delete"),
        *("--delete-config", "retention.ms"),
    )
    assert (code, out.splitlines()) == (
        0,
        [
            f"altered {topic}",
            "  segment.ms  3600000 (1h)",
            "  cleanup.policy  compact,delete",
            "  retention.ms  as the broker's",
        ],
    )
    assert configs() == {"segment.ms": "3600000", "cleanup.policy": "compact,delete"}
    every = json.loads(ottla("topic", "describe", topic, "--configs", "-o", "json")[1])["configs"]
    assert (every["segment.ms"], every["retention.ms"]) == ("3600000", "604800000")


def test_alter_refusals(ottla, topic):
    code, _, err = ottla("topic", "alter", topic)
    assert (code, "--delete-config" in err) == (2, True)
    code, _, err = ottla("topic", "alter", topic, "-c", "retention.millis=1")
    assert (code, "retention.ms" in err) == (2, True)
    code, _, err = ottla("topic", "alter", topic, "-c", "min.insync.replicas=0")
    assert (code, "at least 1" in err) == (2, True)
    code, _, err = ottla("topic", "alter", topic + "x", "-c", "retention.ms=1d")
    assert (code, f"did you mean {topic}" in err) == (5, True)


def test_what_is_produced_is_consumed(ottla, topic):
    lines = "".join(f"k{number}\tvalue {number}\n" for number in range(1000))
    code, out, err = ottla("produce", topic, "-f", r"%k\t%v\n", "-H", "a=b", text=lines)
    assert (code, out) == (0, "")
    assert "1,000 records" in err
    code, out, _ = ottla("consume", topic, "-f", r"%k\t%v\n")
    assert sorted(out.splitlines()) == sorted(lines.splitlines())
    code, out, _ = ottla("consume", topic, "-o", "jsonl", "-n", "5")
    records = [json.loads(line) for line in out.splitlines()]
    assert len(records) == 5
    assert records[0]["headers"] == {"a": "b"}
    assert all(each["value"] == f"value {each['key'][1:]}" for each in records)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec(ottla, topic, codec):
    assert ottla("produce", topic, "--codec", codec, "-p", "0", text="x\ny\n")[0] == 0
    assert ottla("consume", topic)[1] == "x\ny\n"


def test_what_consume_prints_produce_takes(ottla, topic):
    given = [
        {"key": "a", "value": None, "headers": {"h": "1"}, "partition": 1, "timestamp": 1234},
        {"key": None, "value": {"n": 1}},
    ]
    text = "".join(json.dumps(each) + "\n" for each in given)
    assert ottla("produce", topic, "--jsonl", "-q", text=text)[0] == 0
    out = ottla("consume", topic, "-o", "jsonl")[1]
    again = [json.loads(line) for line in out.splitlines()]
    assert len(again) == 2
    first = next(each for each in again if each["key"] == "a")
    assert (first["value"], first["partition"], first["timestamp"]) == (None, 1, 1234)
    assert first["headers"] == {"h": "1"}
    assert ottla("produce", topic, "--jsonl", "-q", text=out)[0] == 0


def test_places_to_begin(ottla, topic):
    ottla("produce", topic, "-p", "0", text="".join(f"{n}\n" for n in range(10)))
    assert ottla("consume", topic, "--from", "7")[1] == "7\n8\n9\n"
    assert ottla("consume", topic, "--from", "-2")[1] == "8\n9\n"
    assert ottla("consume", topic, "--from", "latest")[1] == ""
    assert len(ottla("consume", topic, "--from", "-5m")[1].splitlines()) == 10
    code, _, err = ottla("consume", topic, "--from", "yesterday")
    assert (code, "earliest" in err) == (2, True)


def test_a_bad_line_is_named_and_those_before_it_are_kept(ottla, topic):
    code, _, err = ottla("produce", topic, "--jsonl", text='{"value":"kept"}\nbad\n')
    assert code == 2
    assert "line 2" in err
    assert ottla("consume", topic)[1] == "kept\n"


def test_a_wrong_name_offers_the_right_one(ottla, topic):
    code, _, err = ottla("topic", "describe", topic[:-1])
    assert code == 5
    assert f"did you mean {topic}" in err
    code, _, err = ottla("topic", "create", "x", "-c", "retenton.ms=5")
    assert code == 2
    assert "retention.ms" in err


def test_a_topic_that_exists(ottla, topic):
    assert ottla("topic", "create", topic)[0] == 6
    assert ottla("topic", "create", topic, "--if-not-exists")[0] == 0


def test_nobody_there(ottla):
    code, out, err = ottla("topic", "list", bootstrap="127.0.0.1:1")
    assert (code, out) == (3, "")
    assert "nothing listens on 127.0.0.1:1" in err
    assert "ottla serve" in err


def test_a_reader_that_goes_away_is_no_error(ottla, topic, ottla_server):
    ottla("produce", topic, text="".join(f"{n:0100}\n" for n in range(5000)))
    consume = subprocess.Popen(
        [sys.executable, "-m", "ottla", "consume", topic],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(ottla_server.bootstrap),
    )
    consume.stdout.read(100)
    consume.stdout.close()
    assert consume.stderr.read() == b""
    consume.stderr.close()
    assert consume.wait(20) == 0


def test_tail_waits_and_ctrl_c_ends_it(ottla, topic, ottla_server):
    tail = subprocess.Popen(
        [sys.executable, "-m", "ottla", "consume", topic, "--tail", "--from", "earliest"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(ottla_server.bootstrap),
    )
    try:
        for word in ("one", "two"):
            ottla("produce", topic, "-q", text=word)
            assert tail.stdout.readline() == f"{word}\n".encode()
        os.kill(tail.pid, signal.SIGINT)
        assert tail.wait(20) == 130
        assert tail.stderr.read() == b""
    finally:
        tail.kill()
        tail.wait()  # Else a later test inherits the process, and its ResourceWarning.
        tail.stdout.close()
        tail.stderr.close()


def test_the_first_words_and_the_version(ottla):
    code, out, _ = ottla()
    assert (code, "ottla serve" in out) == (0, True)
    code, out, _ = ottla("version", "-o", "json")
    assert json.loads(out)["version"]
    code, _, err = ottla("serv")
    assert (code, "did you mean serve" in err) == (2, True)


def test_a_command_imports_only_what_it_needs(ottla_server):
    code = (
        "import sys; sys.argv = ['ottla', 'topic', 'list']\n"
        "from ottla.cli.main import main\n"
        "main()\n"
        "heavy = {'typer', 'rich', 'pydantic', 'uvloop', 'ottla.broker', 'ottla.cli.serve',"
        " 'ottla.client.asyncio.producer'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        env=environment(ottla_server.bootstrap),
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
