"""``ottla group`` watch, shift, from file, offsets delete: on Ottla and on Apache Kafka."""

import json

import pytest
from confluent_kafka import Consumer

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def topic(ottla, topic_name):
    """Two partitions with ten records each."""
    assert ottla("topic", "create", topic_name, "-p", "2")[0] == 0
    for partition in ("0", "1"):
        lines = "".join(f"{number}\n" for number in range(10))
        assert ottla("produce", topic_name, "-p", partition, "-q", text=lines)[0] == 0
    return topic_name


@pytest.fixture
def group(ottla, topic):
    """A group without members, at 4 in both partitions."""
    name = f"{topic}-group"
    assert ottla("group", "reset", name, "--topic", topic, "--to", "4", "--yes")[0] == 0
    return name


def committed(shown, group):
    rows = shown("group", "describe", group)["partitions"]
    return {row["partition"]: row["committed"] for row in rows}


def test_a_shift_stays_inside_the_log(ottla, shown, group):
    assert ottla("group", "reset", group, "--shift", "3", "--dry-run")[0] == 0
    assert committed(shown, group) == {0: 4, 1: 4}
    assert ottla("group", "reset", group, "--shift", "3", "--yes")[0] == 0
    assert committed(shown, group) == {0: 7, 1: 7}
    assert ottla("group", "reset", group, "--shift", "-2", "--yes")[0] == 0
    assert committed(shown, group) == {0: 5, 1: 5}
    for shift, at in (("100", 10), ("-100", 0)):
        assert ottla("group", "reset", group, f"--shift={shift}", "--yes")[0] == 0
        assert committed(shown, group) == {0: at, 1: at}


def test_a_reset_says_to_what_in_one_way(ottla, group):
    assert ottla("group", "reset", group, "--yes")[0] == 2
    assert ottla("group", "reset", group, "--to", "1", "--shift", "1", "--yes")[0] == 2


def test_offsets_come_from_a_file_as_kafkas_tools_have_it(ottla, shown, topic, group, tmp_path):
    file = tmp_path / "offsets.csv"
    file.write_text(f'"{topic}",0,2\n{group},{topic},1,9\nother,{topic},0,1\n')
    assert ottla("group", "reset", group, "--from-file", str(file), "--yes")[0] == 0
    assert committed(shown, group) == {0: 2, 1: 9}
    for text, code in (
        (f"{topic},0,11\n", 2),
        (f"{topic},0\n", 2),
        (f"{topic},7,0\n", 5),
        (f"{topic}x,0,0\n", 5),
        ("", 2),
    ):
        file.write_text(text)
        assert ottla("group", "reset", group, "--from-file", str(file), "--yes")[0] == code
    assert ottla("group", "reset", group, "--from-file", str(tmp_path / "no"), "--yes")[0] == 2
    assert committed(shown, group) == {0: 2, 1: 9}, "a file with a mistake changes nothing"


def test_offsets_are_deleted_and_others_stay(ottla, shown, topic, group):
    code, _, err = ottla("group", "offsets", "delete", group, f"{topic}:1")
    assert (code, "--yes" in err) == (2, True)
    assert ottla("group", "offsets", "delete", group, f"{topic}:1", "--dry-run")[0] == 0
    assert committed(shown, group) == {0: 4, 1: 4}
    assert ottla("group", "offsets", "delete", group, f"{topic}:1", "--yes")[0] == 0
    assert committed(shown, group) == {0: 4}
    for wrong, code in ((f"{topic}:1", 5), (f"{topic}x", 5), (f"{topic}:x", 2)):
        assert ottla("group", "offsets", "delete", group, wrong, "--yes")[0] == code
    assert ottla("group", "offsets", "delete", f"{group}x", topic, "--yes")[0] == 5


def test_offsets_that_members_use_are_not_deleted(ottla, shown, either, topic, group):
    consumer = Consumer(
        {"bootstrap.servers": either.bootstrap, "group.id": group, "enable.auto.commit": False}
    )
    try:
        consumer.subscribe([topic])
        for _ in range(60):
            consumer.poll(1.0)
            if consumer.assignment():
                break
        assert consumer.assignment()
        code, _, err = ottla("group", "offsets", "delete", group, topic, "--yes")
        assert (code, "GROUP_SUBSCRIBED_TO_TOPIC" in err) == (1, True), err
        assert committed(shown, group) == {0: 4, 1: 4}
    finally:
        consumer.close()


def test_the_lag_of_all_groups_is_one_question(ottla, shown, topic, group):
    other = f"{topic}-other"
    assert ottla("group", "reset", other, "--topic", topic, "--to", "9", "--yes")[0] == 0
    found = {each["group"]: each["lag"] for each in shown("group", "describe", "--all")}
    assert (found[group], found[other]) == (12, 2)
    lines = ottla("group", "describe", "--all", "--no-header")[1].splitlines()
    assert sum(line.startswith(f"{group}\t{topic}\t") for line in lines) == 2
    assert ottla("group", "describe")[0] == 2
    assert ottla("group", "describe", group, "--all")[0] == 2


def test_a_watch_ends_when_everything_is_read(ottla, topic, group):
    watch = ("group", "watch", group, "--every", "100ms", "-o", "jsonl")
    code, out, _ = ottla(*watch, "-n", "2")
    rows = [json.loads(line) for line in out.splitlines()]
    assert (code, [row["lag"] for row in rows]) == (0, [12, 12])
    assert (rows[1]["read_per_s"], rows[1]["empty_in"]) == (0, None)
    assert ottla("group", "reset", group, "--to", "latest", "--yes")[0] == 0
    code, out, _ = ottla(*watch, "--until-empty")
    assert (code, json.loads(out)["empty_in_ms"]) == (0, 0)
    assert ottla("group", "watch", f"{group}x")[0] == 5
    assert ottla("group", "watch", group, "--every", "soon")[0] == 2
