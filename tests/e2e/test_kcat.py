"""kcat: list, produce, consume."""

import json
import shutil
import subprocess

import pytest


@pytest.fixture
def kcat(target):
    """Run kcat; return what it printed."""
    program = shutil.which("kcat") or shutil.which("kafkacat")
    if program is None:
        pytest.skip("kcat is not installed")

    def run(*arguments, text=""):
        done = subprocess.run(
            [program, "-b", target.bootstrap, *map(str, arguments)],
            input=text,
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_list(kcat, wire, topic_name):
    wire.create_topic(topic_name, 2)
    asked = wire.call("metadata", 12, topics=[{"name": topic_name}])
    told = json.loads(kcat("-L", "-J"))
    names = sorted(f"{broker['host']}:{broker['port']}" for broker in asked["brokers"])
    assert sorted(broker["name"] for broker in told["brokers"]) == names
    found = next(topic for topic in told["topics"] if topic["topic"] == topic_name)
    leaders = {p["partition_index"]: p["leader_id"] for p in asked["topics"][0]["partitions"]}
    assert {p["partition"]: p["leader"] for p in found["partitions"]} == leaders
    assert leaders.keys() == {0, 1}
    assert "2 partitions" in kcat("-L", "-t", topic_name)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produce_and_consume(kcat, wire, topic_name, codec):
    wire.create_topic(topic_name)
    lines = [f"{number}:value {number}" for number in range(2000)]
    kcat("-P", "-t", topic_name, "-p", 0, "-K:", "-z", codec, text="\n".join(lines) + "\n")
    read = kcat("-C", "-t", topic_name, "-p", 0, "-o", "beginning", "-e", "-q", "-f", "%o %k:%s\n")
    assert read.splitlines() == [f"{offset} {line}" for offset, line in enumerate(lines)]
    tail = kcat("-C", "-t", topic_name, "-p", 0, "-o", -3, "-e", "-q", "-f", "%o\n")
    assert tail.split() == ["1997", "1998", "1999"]
    middle = kcat("-C", "-t", topic_name, "-p", 0, "-o", 1000, "-c", 1, "-q", "-f", "%k\n")
    assert middle.split() == ["1000"]


def test_query_offsets(kcat, wire, topic_name):
    wire.create_topic(topic_name)
    kcat("-P", "-t", topic_name, "-p", 0, text="a\nb\nc\n")
    assert "offset 3" in kcat("-Q", "-t", f"{topic_name}:0:-1")
    assert "offset 0" in kcat("-Q", "-t", f"{topic_name}:0:-2")
