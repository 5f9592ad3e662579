"""``ottla produce``: where records come from besides lines, on Ottla and on Apache Kafka."""

import json
import re

import pytest

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def records(ottla, topic_name):
    """Return what the topic holds."""

    def read(topic=topic_name):
        code, out, err = ottla("consume", topic, "-o", "jsonl")
        assert code == 0, err
        return [json.loads(line) for line in out.splitlines()]

    return read


def test_lines_name_their_topics(ottla, topic_name, records):
    names = [f"{topic_name}-{each}" for each in "ab"]
    text = "".join(f"{name} {n}\n" for n in range(3) for name in names)
    code, _, err = ottla("produce", "-f", "%t %v", text=text)
    assert code == 0, err
    for name in names:
        assert f"created topic {name}" in err
        assert f"  {name} partition 0  3  offsets 0-2" in err
        assert [each["value"] for each in records(name)] == ["0", "1", "2"]
    assert ottla("produce", text="x\n")[0] == 2


def test_files_are_records_whole(ottla, topic_name, records, tmp_path):
    (tmp_path / "one").write_bytes(b"a\nb\xff\n")
    (tmp_path / "two").write_bytes(b"")
    files = [part for name in ("one", "two") for part in ("--file", str(tmp_path / name))]
    assert ottla("produce", topic_name, "-k", "f", *files)[0] == 0
    assert [each["value"] for each in records()] == [{"base64": "YQpi/wo="}, ""]
    code, _, err = ottla("produce", topic_name, "--file", str(tmp_path / "none"))
    assert code == 1
    assert "cannot read" in err


def test_tombstones(ottla, topic_name, records):
    assert ottla("produce", topic_name, "-k", "gone", "--tombstone")[0] == 0
    assert ottla("produce", topic_name, "-f", "%k=%v", "--null", text="a=\n=b\n")[0] == 0
    found = [(each["key"], each["value"]) for each in records()]
    assert found == [("gone", None), ("a", None), (None, "b")]
    assert ottla("produce", topic_name, "--tombstone")[0] == 2


def test_a_template_at_a_rate(ottla, topic_name, records):
    template = '{"n": %i, "r": %r, "u": "%u", "t": %T, "p": "100%%"}'
    more = ("-k", "k%i", "-n", "4", "--rate", "20")
    code, _, err = ottla("produce", topic_name, "--template", template, *more)
    assert code == 0, err
    seconds = float(re.search(r"in ([\d.]+) s", err)[1])
    assert seconds >= 0.1
    found = records()
    values = [json.loads(each["value"]) for each in found]
    assert [(each["key"], value["n"]) for each, value in zip(found, values, strict=True)] == [
        (f"k{n}", n) for n in range(4)
    ]
    assert len({value["u"] for value in values}) == 4
    assert {value["p"] for value in values} == {"100%"}
    for wrong in (("--template", "%z"), ("--template", "x", "--jsonl"), ("--rate", "0")):
        assert ottla("produce", topic_name, *wrong)[0] == 2


def test_a_count_ends_the_reading_of_lines(ottla, topic_name, records):
    assert ottla("produce", topic_name, "-n", "2", text="1\n2\n3\n")[0] == 0
    assert [each["value"] for each in records()] == ["1", "2"]


LINES = [
    ((), "a\nb\r\n\nc", [(None, "a"), (None, "b"), (None, ""), (None, "c")]),
    (("-k", "K"), "a\nb\n", [("K", "a"), ("K", "b")]),
    (("-Z",), "a\n\n", [(None, "a"), (None, None)]),
    (("-f", "%k:%v"), "x:1\n:2\nx:\r\n", [("x", "1"), ("", "2"), ("x", "")]),
    (("-f", "%k:%v", "-Z"), "x:1\n:2\nx:\n", [("x", "1"), (None, "2"), ("x", None)]),
    (("-f", "%k:%v", "-Z", "-k", "K"), ":2\n", [("K", "2")]),
    (("-f", "%k::%v"), "x:1::y\n", [("x:1", "y")]),
]


@pytest.mark.parametrize(("options", "text", "expected"), LINES)
@pytest.mark.parametrize("way", [(), ("-n", "99"), ("-p", "1")])
def test_lines_at_once_and_one_by_one_are_the_same(
    ottla, topic_name, records, options, text, expected, way
):
    assert ottla("topic", "create", topic_name, "-p", "2")[0] == 0
    code, _, err = ottla("produce", topic_name, "-H", "h=1", *options, *way, text=text)
    assert code == 0, err
    found = records()
    pairs = [(each["key"], each["value"]) for each in found]
    assert sorted(map(str, pairs)) == sorted(map(str, expected))
    assert all(each["headers"] == [["h", "1"]] for each in found)
    if "-p" in way:
        assert {each["partition"] for each in found} == {1}
        assert pairs == expected
    assert f"{len(expected)} record" in err


def test_lines_before_a_bad_one_are_sent_and_it_is_named(ottla, topic_name, records):
    text = "".join(f"k{n}\tv{n}\n" for n in range(5000)) + "bad\nk\tv\n"
    code, _, err = ottla("produce", topic_name, "-f", "%k\\t%v", text=text)
    assert code == 2
    assert "5,000 records" in err
    assert "error: line 5001: the line has no '\\t'" in err
    assert [each["value"] for each in records()] == [f"v{n}" for n in range(5000)]
