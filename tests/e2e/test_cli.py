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
    assert ottla("topic", "add-partitions", topic, "2", "--yes")[0] == 0
    assert len(ottla("topic", "describe", topic, "--no-header")[1].splitlines()) == 5
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
    assert records[0]["headers"] == [["a", "b"]]
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
    assert first["headers"] == [["h", "1"]]
    assert ottla("produce", topic, "--jsonl", "-q", text=out)[0] == 0


def test_a_copy_by_json_loses_no_byte_and_no_header(ottla, topic):
    lines = [
        {"value": {"base64": "//4B"}, "headers": [["a", "1"], ["a", {"base64": "/w=="}]]},
        {"key": {"base64": "wA=="}, "value": "\\xff", "headers": [["", None]]},
        {"key": "", "value": ""},
        {"key": "only", "value": None},
    ]
    text = "".join(json.dumps({**each, "partition": 0}) + "\n" for each in lines)
    assert ottla("produce", topic, "--jsonl", "-q", text=text)[0] == 0
    first = ottla("consume", topic, "-o", "jsonl")[1]
    assert ottla("topic", "create", f"{topic}-copy", "-p", "3")[0] == 0
    assert ottla("produce", f"{topic}-copy", "--jsonl", "-q", text=first)[0] == 0
    second = ottla("consume", f"{topic}-copy", "-o", "jsonl")[1]
    assert second == first.replace(topic, f"{topic}-copy")
    shown = [json.loads(line) for line in second.splitlines()]
    assert [(each["key"], each["value"], each["headers"]) for each in shown] == [
        (each.get("key"), each["value"], each.get("headers", [])) for each in lines
    ]


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
        "import sys\n"
        "from ottla.cli.main import command_line\n"
        "command_line(['topic', 'list'])\n"
        "heavy = {'typer', 'rich', 'pydantic', 'uvloop', 'ottla.broker', 'ottla.cli.serve',"
        " 'ottla.client.asyncio.producer', 'ottla.config.broker', 'difflib'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "print('looked')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        env=environment(ottla_server.bootstrap),
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(b"looked\n")


@pytest.fixture
def damaged(ottla_server_factory, tmp_path):
    """Two partitions of three batches; of the first one the middle batch has a wrong byte."""
    data = tmp_path / "damaged"
    server = ottla_server_factory(data=data)

    def produce(partition, value):
        subprocess.run(
            [sys.executable, "-m", "ottla", "produce", "torn", "-q", "-p", str(partition)],
            input=value,
            check=True,
            env=environment(server.bootstrap),
        )

    made = [sys.executable, "-m", "ottla", "topic", "create", "torn", "-p", "2"]
    subprocess.run(made, check=True, env=environment(server.bootstrap), capture_output=True)
    for value in (b"first", b"second", b"third"):
        for partition in (0, 1):
            produce(partition, value)
    server.stop()
    path = data / "torn-0" / f"{0:020d}.log"
    content = path.read_bytes()
    path.write_bytes(content.replace(b"second", b"sEcond"))
    return ottla_server_factory(data=data)


def test_a_damaged_batch_is_named_and_all_else_is_shown(ottla, damaged):
    where = {"bootstrap": damaged.bootstrap}
    shape = r"%p:%o %v\n"
    code, out, err = ottla("consume", "torn", "-f", shape, **where)
    assert code == 1
    assert sorted(out.splitlines()) == ["0:0 first", "1:0 first", "1:1 second", "1:2 third"]
    assert "torn-0 is damaged at offset 1" in err
    assert "wrong CRC32C" in err
    assert "broker answered" not in err
    code, out, err = ottla("consume", "torn", "-f", shape, "--skip-corrupt", **where)
    assert code == 0
    assert sorted(out.splitlines()) == [
        *("0:0 first", "0:2 third", "1:0 first", "1:1 second", "1:2 third")
    ]
    assert "skipped a damaged batch of torn-0" in err


def test_a_group_does_not_go_on_behind_a_damaged_batch(ottla, damaged):
    where = {"bootstrap": damaged.bootstrap}
    code, _, err = ottla("consume", "torn", "-g", "readers", **where)
    assert (code, "torn-0 is damaged at offset 1" in err) == (1, True)
    out = ottla("group", "describe", "readers", "-o", "json", **where)[1]
    committed = {each["partition"]: each["committed"] for each in json.loads(out)["partitions"]}
    assert committed[0] == 1


def test_a_topic_does_not_count_markers_and_gaps_as_records(ottla, topic):
    ottla("produce", topic, "-q", "-p", "0", text="a\nb\n")
    rows = json.loads(ottla("topic", "describe", topic, "-o", "json")[1])["partitions"]
    assert (rows[0]["offsets"], rows[0]["end"], rows[0]["stable"]) == (2, 2, 2)
    assert "records" not in rows[0]


def test_help_is_no_error(ottla):
    for words in (("help",), ("help", "topic"), ("topic",), ("help", "topic", "create")):
        code, out, err = ottla(*words)
        assert (code, out.startswith("usage: ottla"), err) == (0, True, ""), words
    assert "create" in ottla("topic")[1]


@pytest.mark.parametrize(
    ("typed", "meant", "where"),
    [
        (("topic", "lst"), "did you mean list?", "ottla topic --help"),
        (("topic", "list", "--intrenal"), "did you mean --internal?", "ottla topic list --help"),
        (("consume", "t", "--tial"), "did you mean --tail?", "ottla consume --help"),
        (("topic", "list", "-o", "jsno"), "did you mean json?", "ottla topic list --help"),
        (("topic", "list", "-X", "client.ids=x"), "did you mean client.id?", ""),
    ],
)
def test_names_that_are_nearly_right_are_offered(ottla, typed, meant, where):
    code, out, err = ottla(*typed)
    assert (code, out) == (2, "")
    assert meant in err
    assert f"fix: {where}" in err or not where
    assert len(err.splitlines()) <= 3


def test_errors_are_json_where_that_was_asked_for(ottla, topic):
    for output in ("json", "jsonl", "yaml"):
        code, out, err = ottla("topic", "describe", f"{topic}x", "-o", output)
        assert (code, out) == (5, "")
        assert json.loads(err)["error"] == {
            "code": "NOT_FOUND",
            "what": f"there is no topic {topic}x",
            "why": "",
            "fix": f"did you mean {topic}?",
        }


@pytest.mark.parametrize(
    ("typed", "what"),
    [
        ("topic list --nope -o json", "unknown option --nope"),
        ("topic trim t --output=jsonl", "are required: --to"),
        ("cluster describe -oyaml", "no command describe"),
    ],
)
def test_wrong_usage_is_told_as_json_too(ottla, typed, what):
    code, out, err = ottla(*typed.split())
    assert (code, out) == (2, "")
    error = json.loads(err)["error"]
    assert error["code"] == "USAGE"
    assert what in error["what"]
    assert error["fix"].endswith("--help")


def test_a_clients_own_file_may_hold_more_than_means_something_here(ottla, topic, tmp_path):
    path = tmp_path / "client.properties"
    path.write_text("acks=all\nclient.id=me\ncompression.type=lz4\nclient.idd=x\n")
    code, out, err = ottla("topic", "list", "--command-config", str(path), "--no-header")
    assert (code, topic in out) == (0, True)
    assert f"acks in {path} means nothing here" in err
    assert "client.idd" in err
    assert "did you mean client.id" in err


def test_partitions_are_not_added_unasked(ottla, topic):
    code, _, err = ottla("topic", "add-partitions", topic, "5")
    assert (code, "3 -> 8 partitions" in err, "--yes" in err) == (2, True, True)
    assert len(ottla("topic", "describe", topic, "--no-header")[1].splitlines()) == 3


def test_a_topic_that_is_made_on_the_way_is_told(ottla, topic):
    code, _, err = ottla("produce", f"{topic}-typo", text="x\n")
    assert (code, f"created topic {topic}-typo, 1 partition" in err) == (0, True)
    assert "created" not in ottla("produce", f"{topic}-typo", text="x\n")[2]
    code, _, err = ottla("produce", topic, "-p", "9")
    assert (code, f"{topic} has no partition 9" in err) == (5, True)
    text = '{"value":"kept","partition":0}\n{"value":"no","partition":9}\n'
    code, _, err = ottla("produce", topic, "--jsonl", text=text)
    assert (code, "line 2: " in err, "1 record " in err) == (5, True, True)
    assert ottla("consume", topic)[1] == "kept\n"


def test_a_broker_that_is_away_is_told(ottla, ottla_server_factory, tmp_path):
    data = tmp_path / "away"
    server = ottla_server_factory(data=data)
    where = {"bootstrap": server.bootstrap}
    assert ottla("produce", "t", text="one\n", **where)[0] == 0
    tail = subprocess.Popen(
        [sys.executable, "-m", "ottla", "consume", "t", "--tail", "--from", "earliest"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(server.bootstrap),
    )
    try:
        assert tail.stdout.readline() == b"one\n"
        server.stop()
        assert b"waiting: nothing listens" in tail.stderr.readline()
        with OttlaPeer(data, port=server.port) as again:
            again.start()
            assert b"the cluster answers again" in tail.stderr.readline()
            assert ottla("produce", "t", text="two\n", **where)[0] == 0
            assert tail.stdout.readline() == b"two\n"
    finally:
        tail.kill()
        tail.wait()
        tail.stdout.close()
        tail.stderr.close()


def test_a_running_broker_has_not_stopped_uncleanly(ottla, ottla_server):
    told = json.loads(ottla("doctor", str(ottla_server.data), "-o", "jsonl")[1].splitlines()[0])
    assert (told["is_running"], told["stopped_cleanly"]) == (True, None)


def test_every_way_to_print_the_version(ottla):
    facts = json.loads(ottla("version", "-o", "json")[1])
    assert ottla("version", "-o", "tsv", "--no-header")[1].split("\t")[0] == facts["version"]
    assert facts["python"] in ottla("version", "-o", "table")[1]
    assert json.loads(ottla("version", "-o", "jsonl")[1]) == facts
