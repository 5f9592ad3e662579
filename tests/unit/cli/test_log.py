"""``ottla log`` and ``ottla doctor``: exit codes, formats, and what goes to which stream."""

import json

import pytest

from ottla.cli import main as cli
from ottla.env.clock import ManualClock
from ottla.env.real_disk import RealDisk
from ottla.env.rng import SeededRng
from ottla.ids import TopicId, TopicPartition
from ottla.log.config import LogConfig
from ottla.log.directories.manager import LogManager
from ottla.records.builder import build_batch
from ottla.records.record import Record

NOW = 1_700_000_000_000


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path / "data", node_id=3)


def write_data(directory, *, node_id):
    manager = LogManager(
        disk=RealDisk(),
        clock=ManualClock(NOW),
        rng=SeededRng(7),
        log_dirs=[str(directory)],
        cluster_id="a-cluster",
        node_id=node_id,
        config_for=lambda topic: LogConfig(segment_bytes=1000, index_interval_bytes=100),
    )
    manager.start()
    for partition in (0, 1):
        log = manager.create(TopicPartition("orders", partition), TopicId(b"0123456789abcdef"))
        for number in range(20):
            records = [Record(timestamp=NOW, key=b"k%d" % number, value=b"v" * 20)] * 2
            log.append(memoryview(build_batch(records, codec=number % 2)), leader_epoch=0)
    manager.stop()
    return directory


@pytest.fixture
def two_nodes(tmp_path):
    """The data of two nodes of one host: return that of the second."""
    write_data(tmp_path / "data", node_id=1)
    (tmp_path / "data" / "metadata.sqlite").touch()
    (tmp_path / "data" / "nodes").mkdir()
    return write_data(tmp_path / "data" / "nodes" / "2", node_id=2)


@pytest.fixture
def ottla(capsys):
    """Run the command line; return (exit code, standard output, standard error)."""

    def run(*arguments):
        code = 0
        try:
            cli.command_line([*map(str, arguments)])
        except SystemExit as error:
            code = error.code
        return code, *capsys.readouterr()

    return run


def first_log(data):
    return data / "orders-0" / f"{0:020d}.log"


def damage(data):
    path = first_log(data)
    content = bytearray(path.read_bytes())
    content[70] ^= 1
    path.write_bytes(content)


def test_verify_of_a_sound_directory(ottla, data):
    (data / "metadata.sqlite").touch()
    code, out, err = ottla("log", "verify", data)
    assert (code, out) == (0, "")
    assert "2 partitions" in err
    assert "40 batches, 80 records" in err
    assert "0 errors" in err


@pytest.mark.parametrize("where", ["", "orders-0"])
def test_verify_of_a_damaged_one_fails(ottla, data, where):
    damage(data)
    code, out, err = ottla("log", "verify", data / where, "-o", "json")
    assert code == 1
    told = json.loads(out)
    (finding,) = [each for each in told["findings"] if each["severity"] == "error"]
    assert finding["path"] == str(first_log(data))
    assert finding["position"] == 0
    assert finding["why"]
    assert finding["fix"]
    assert (told["errors"], told["partitions"]) == (1, 1 if where else 2)
    assert "1 error" in err


@pytest.mark.parametrize("where", ["data", "data/nodes/2", "data/nodes/2/orders-0"])
def test_damage_of_a_further_node_is_seen(ottla, tmp_path, two_nodes, where):
    """It was not looked at: 0 errors."""
    damage(two_nodes)
    code, out, err = ottla("log", "verify", tmp_path / where, "-o", "json")
    (finding,) = json.loads(out)["findings"]
    assert (code, finding["severity"]) == (1, "error")
    assert finding["path"] == str(first_log(two_nodes))
    assert finding["what"].startswith("node 2: ")
    count = {"data": 4, "data/nodes/2": 2}.get(where, 1)
    assert err.startswith(f"{count} partition")


@pytest.mark.parametrize("where", ["data", "data/nodes/2"])
def test_the_metadata_of_a_further_node_is_above(ottla, tmp_path, monkeypatch, two_nodes, where):
    """It was said to be missing, with a fix that would have been none."""
    for each in (str(tmp_path / where), "."):
        monkeypatch.chdir(tmp_path / where)
        code, out, _ = ottla("doctor", each, "-o", "json")
        told = json.loads(out)
        assert (code, told["kind"], told["findings"]) == (0, "ottla", [])
        nodes = [(one["node"], one["node_id"], one["kind"]) for one in told["nodes"]]
        assert nodes == ([(2, 2, "ottla")] if where == "data" else [])
    assert ottla("log", "verify", ".")[0] == 0
    (tmp_path / "data" / "metadata.sqlite").unlink()
    told = json.loads(ottla("doctor", tmp_path / where, "-o", "json")[1])
    missing = [each for each in told["findings"] if "no metadata.sqlite" in each["what"]]
    assert [each["path"] for each in missing] == [str(tmp_path / "data")], "once, where it belongs"


def test_doctor_sees_what_is_lost_of_a_further_node(ottla, tmp_path, two_nodes):
    for path in (two_nodes / "orders-1").glob("*.log"):
        path.unlink()
    code, out, _ = ottla("doctor", tmp_path / "data")
    assert code == 1
    assert "node 2: no segments; the recovery point is 40" in out
    assert out.count("cluster id") == 2


def test_a_further_node_whose_directory_is_none_is_told(ottla, tmp_path, two_nodes):
    (two_nodes.parent / "3").write_bytes(b"")
    (two_nodes.parent / "notes").write_bytes(b"")
    for command in (("doctor",), ("log", "verify")):
        code, out, _ = ottla(*command, tmp_path / "data", "-o", "json")
        (finding,) = json.loads(out)["findings"]
        assert (code, finding["path"]) == (1, str(two_nodes.parent / "3"))
        assert finding["what"] == "node 3: it cannot be read"


def test_a_directory_that_only_looks_like_a_further_node_is_one_of_its_own(ottla, tmp_path):
    (tmp_path / "nodes").mkdir()
    own = write_data(tmp_path / "nodes" / "2", node_id=1)
    told = json.loads(ottla("doctor", own, "-o", "json")[1])
    assert [each["path"] for each in told["findings"]] == [str(own)]
    assert told["findings"][0]["what"] == "there is no metadata.sqlite"
    assert told["findings"][0]["fix"].startswith("nothing if another one of log.dirs has it")


@pytest.mark.parametrize("output", ["table", "json", "jsonl", "yaml", "tsv"])
@pytest.mark.parametrize("options", [(), ("--records",), ("--verify",)])
def test_dump_in_every_format(ottla, data, output, options):
    code, out, err = ottla("log", "dump", data / "orders-0", "-o", output, *options)
    assert code == 0
    assert str(first_log(data)) in err
    assert str(first_log(data)) not in out
    if output == "json":
        rows = json.loads(out)
        assert [row["base_offset"] for row in rows] == list(range(0, 40, 2))
        assert all(row["is_valid"] for row in rows)
        if options == ("--records",):
            assert rows[3]["records"][1]["key"] == "k3"
    elif output == "jsonl":
        assert [json.loads(line)["last_offset"] for line in out.splitlines()] == [*range(1, 40, 2)]
    else:
        assert len(out.splitlines()) >= 20


@pytest.mark.parametrize("options", [(), ("--verify",)])
def test_dump_tells_what_is_bad(ottla, data, options):
    damage(data)
    code, out, err = ottla("log", "dump", first_log(data), "-o", "table", *options)
    assert "BAD CRC32C" in out
    assert "crc" in out.splitlines()[1], "it goes on behind the bad batch"
    assert code == (1 if options else 0)
    assert "1 of the things printed are bad" in err


def test_dump_of_the_small_files(ottla, data):
    for path in (*data.rglob("*.*index"), *data.rglob("*.snapshot"), *data.rglob("*checkpoint")):
        code, out, _ = ottla("log", "dump", path, "-o", "json")
        assert code == 0
        json.loads(out)
    code, out, _ = ottla("log", "dump", data / "meta.properties", "-o", "jsonl")
    told = json.loads(out)
    assert (told["cluster_id"], told["node_id"]) == ("a-cluster", 3)


def test_dump_of_an_empty_index_says_so(ottla, data):
    index = first_log(data).with_suffix(".index")
    index.write_bytes(bytes(64))
    assert ottla("log", "dump", index, "-o", "json") == (
        0,
        "[]\n",
        f"{index}\n  nothing is in it\n",
    )


def test_dump_of_a_torn_file(ottla, data):
    path = first_log(data)
    path.write_bytes(path.read_bytes()[:-5])
    code, out, err = ottla("log", "dump", path, "-o", "jsonl", "--verify")
    assert code == 1
    assert json.loads(out.splitlines()[-1])["unreadable"]["position"] > 0
    assert "bytes unread" in err


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("log", "dump", "nowhere"), 5, "there is no nowhere"),
        (("log", "verify", "nowhere"), 5, "there is no directory nowhere"),
        (("doctor", "nowhere"), 5, "there is no directory nowhere"),
        (("log", "verify", "."), 2, "is not a data directory"),
        (("log", "dump", "."), 2, "is not a partition's directory"),
        (("log", "dump", "odd"), 2, "no known kind of file"),
    ],
)
def test_mistakes_are_named(ottla, tmp_path, monkeypatch, arguments, code, word):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd").write_bytes(b"")
    got, out, err = ottla(*arguments)
    assert (got, out) == (code, "")
    assert word in err


def test_doctor_says_what_the_directory_is(ottla, data):
    code, out, _ = ottla("doctor", data, "-o", "json")
    told = json.loads(out)
    assert code == 0
    assert (told["cluster_id"], told["node_id"], told["kind"]) == ("a-cluster", 3, "unknown")
    assert (told["topics"], told["partitions"], told["stopped_cleanly"]) == (1, 2, True)
    assert told["is_running"] is False
    code, out, _ = ottla("doctor", data)
    assert "cluster id" in out
    assert "a-cluster" in out


def test_doctor_fails_when_records_are_lost(ottla, data):
    for path in (data / "orders-1").glob("*.log"):
        path.unlink()
    code, out, _ = ottla("doctor", data)
    assert code == 1
    assert "no segments; the recovery point is 40" in out
    assert "fix: " in out


def test_looking_changes_nothing(ottla, data):
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    ottla("log", "verify", data, "--deep")
    ottla("doctor", data)
    ottla("log", "dump", data / "orders-0", "--records")
    assert {path: path.stat().st_mtime_ns for path in data.rglob("*")} == before


def test_the_lines_of_a_finding_stay_lines(capsys):
    """They were one line on a terminal, with ``\\n`` in it."""
    from ottla.cli.log import show_findings
    from ottla.cli.output import Format
    from ottla.log.inspect.findings import Finding, Severity

    found = Finding(Severity.ERROR, "a\nb.log", "it is torn", "a crash", "nothing", 7)
    show_findings([found], Format.TABLE, {})
    assert capsys.readouterr().out.splitlines() == [
        "error: a\\nb.log at byte 7",
        "  it is torn",
        "  why: a crash",
        "  fix: nothing",
    ]
