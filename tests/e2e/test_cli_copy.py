"""``ottla topic copy`` and ``diff`` on Ottla, on Apache Kafka, and from one to the other."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from confluent_kafka import Producer

from tests.commands import run_command
from tools.ottla_peer import OttlaPeer

pytestmark = pytest.mark.timeout(180)
PATIENCE_SECONDS = 60
RECORDS = [
    {"partition": 0, "key": "k", "value": {"base64": "//4B"}, "timestamp": 1_700_000_000_123},
    {"partition": 0, "key": "k", "value": None, "headers": [["a", "1"], ["a", {"base64": "/w=="}]]},
    {"partition": 2, "key": None, "value": "", "timestamp": 0, "headers": [["", None]]},
]


def lines(records):
    return "".join(json.dumps(each) + "\n" for each in records)


@pytest.fixture
def topic(ottla, topic_name):
    """Three partitions: odd records, aborted ones, a transaction's, and an empty partition."""
    never = ("-c", "retention.ms=-1")
    assert ottla("topic", "create", topic_name, "-p", "3", *never)[0] == 0
    assert ottla("produce", topic_name, "--jsonl", "-q", text=lines(RECORDS))[0] == 0
    return topic_name


@pytest.fixture
def transactions(either, topic):
    """In partition 0, behind its two records: an aborted transaction, and a committed one."""
    producer = Producer({"bootstrap.servers": either.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for value, end in (
        (b"never", producer.abort_transaction),
        (b"seen", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(30)
        end(30)


def records_of(run, topic):
    code, out, err = run("consume", topic, "-o", "jsonl", "--read-committed")
    assert code == 0, err
    found = [json.loads(line) for line in out.splitlines()]
    kept = ("partition", "key", "value", "headers", "timestamp")
    return sorted(json.dumps([each[name] for name in kept]) for each in found)


def test_a_copy_is_exact_and_leaves_out_what_was_aborted(ottla, shown, topic, transactions):
    copy = f"{topic}-copy"
    rows = shown("topic", "copy", topic, copy)
    assert [row["copied"] for row in rows] == [3, 0, 1]
    assert records_of(ottla, copy) == records_of(ottla, topic)
    assert len(records_of(ottla, copy)) == 4
    rows = shown("topic", "diff", topic, copy)
    assert [row["note"] for row in rows] == ["", "", ""]
    assert all(row["first_digest"] == row["second_digest"] for row in rows)
    configs = shown("topic", "describe", copy)["configs"]
    assert configs["retention.ms"] == "-1", "what somebody set for the one, the other has, too"


def test_what_is_new_is_copied_and_nothing_twice(ottla, shown, topic):
    copy = f"{topic}-copy"
    shown("topic", "copy", topic, copy, "--codec", "lz4")
    assert [row["copied"] for row in shown("topic", "copy", topic, copy)] == [0, 0, 0]
    assert ottla("produce", topic, "-p", "1", "-q", text="new\n")[0] == 0
    assert [row["copied"] for row in shown("topic", "copy", topic, copy)] == [0, 1, 0]
    assert ottla("topic", "diff", topic, copy)[0] == 0
    assert ottla("topic", "copy", topic, copy, "--from", "latest")[0] == 2


def test_records_behind_the_last_checkpoint_are_not_copied_again(ottla, shown, topic):
    copy = f"{topic}-copy"
    shown("topic", "copy", topic, copy)
    new = [{"partition": 1, "value": str(n), "timestamp": 1_700_000_000_000 + n} for n in range(5)]
    assert ottla("produce", topic, "--jsonl", "-q", text=lines(new))[0] == 0
    # As a copy leaves it that is killed before it has kept how far it was.
    assert ottla("produce", copy, "--jsonl", "-q", text=lines(new[:3]))[0] == 0
    assert [row["copied"] for row in shown("topic", "copy", topic, copy)] == [0, 2, 0]
    assert ottla("topic", "diff", topic, copy)[0] == 0


@pytest.mark.parametrize("left", [4, 2, 0], ids=["some", "all_that_is_new", "none"])
def test_a_copy_goes_on_though_the_source_has_deleted_what_it_wrote_last(ottla, shown, topic, left):
    copy = f"{topic}-copy"
    shown("topic", "copy", topic, copy)
    new = [{"partition": 1, "value": str(n), "timestamp": 1_700_000_000_000 + n} for n in range(5)]
    assert ottla("produce", topic, "--jsonl", "-q", text=lines(new))[0] == 0
    # As a copy leaves it that is killed before it has kept how far it was.
    assert ottla("produce", copy, "--jsonl", "-q", text=lines(new[:3]))[0] == 0
    assert ottla("topic", "trim", f"{topic}:1", "--to", str(5 - left), "--yes")[0] == 0
    copied = min(left, 2)
    assert [row["copied"] for row in shown("topic", "copy", topic, copy)] == [0, copied, 0]
    values = [json.loads(each)[2] for each in records_of(ottla, copy) if json.loads(each)[0] == 1]
    assert values == [str(n) for n in (*range(3), *range(5 - copied, 5))]


def test_a_copy_of_a_compacted_topic_goes_on_with_what_is_left(ottla, shown, topic):
    copy = f"{topic}-copy"
    shown("topic", "copy", topic, copy)
    assert ottla("config", "set", f"topic/{topic}", "cleanup.policy=compact")[0] == 0
    new = [
        {"partition": 1, "key": str(n), "value": str(n), "timestamp": 1_700_000_000_000 + n}
        for n in range(6)
    ]
    # Of what the copy has, 1 and 2 are compacted away in the source: it never saw them here.
    assert ottla("produce", copy, "--jsonl", "-q", text=lines(new[:4]))[0] == 0
    assert ottla("produce", topic, "--jsonl", "-q", text=lines([new[0], *new[3:]]))[0] == 0
    assert [row["copied"] for row in shown("topic", "copy", topic, copy)] == [0, 2, 0]
    # What others have written is still told from it.
    other = [{"partition": 1, "key": "other", "value": "x"}]
    assert ottla("produce", copy, "--jsonl", "-q", text=lines(other))[0] == 0
    assert ottla("produce", topic, "--jsonl", "-q", text=lines(new[:1]))[0] == 0
    code, _, err = ottla("topic", "copy", topic, copy)
    assert code == 1
    assert "holds what was not copied" in err


def test_a_copy_that_is_killed_goes_on(ottla, shown, either, topic):
    copy = f"{topic}-copy"
    text = "".join(f"{number}\n" for number in range(60_000))
    assert ottla("produce", topic, "-p", "1", "-q", text=text)[0] == 0
    assert ottla("topic", "create", copy, "-p", "3")[0] == 0
    environment = OttlaPeer.environment(OttlaPeer.__new__(OttlaPeer))
    copying = subprocess.Popen(
        [sys.executable, "-m", "ottla", "topic", "copy", topic, copy],
        env={**environment, "OTTLA_BOOTSTRAP": either.bootstrap},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + PATIENCE_SECONDS
    while shown("topic", "describe", copy)["partitions"][1]["end"] == 0:
        assert time.monotonic() < deadline
    os.kill(copying.pid, signal.SIGKILL)
    copying.wait(PATIENCE_SECONDS)
    assert ottla("topic", "copy", topic, copy)[0] == 0
    rows = shown("topic", "diff", topic, copy)
    assert rows[1]["second_records"] == 60_000


def test_a_copy_into_fewer_partitions_writes_nothing(ottla, shown, topic):
    few = f"{topic}-few"
    assert ottla("topic", "create", few, "-p", "2")[0] == 0
    code, _, err = ottla("topic", "copy", topic, few)
    assert (code, "too few partitions" in err) == (1, True), err
    assert [row["end"] for row in shown("topic", "describe", few)["partitions"]] == [0, 0]


def test_nothing_is_mixed_with_what_others_wrote(ottla, shown, topic):
    copy = f"{topic}-copy"
    assert ottla("topic", "create", copy, "-p", "4")[0] == 0
    assert ottla("produce", copy, "-p", "0", "-q", text="mine\n")[0] == 0
    code, _, err = ottla("topic", "copy", topic, copy)
    assert (code, "not of this copy" in err) == (1, True), err
    assert [row["copied"] for row in shown("topic", "copy", topic, copy, "--append")] == [2, 0, 1]
    assert ottla("produce", copy, "-p", "2", "-q", text="foreign\n")[0] == 0
    code, _, err = ottla("topic", "copy", topic, copy)
    assert (code, "not copied" in err) == (1, True), err
    code, out, err = ottla("topic", "diff", topic, copy, "-o", "json")
    assert code == 1
    assert [row["note"] for row in json.loads(out)] == [
        "differ at offsets 0 and 0",
        "",
        "the second has more, from offset 1 on",
        "only in one",
    ]


def test_what_cannot_be_copied_is_refused_in_words(ottla, topic):
    assert ottla("topic", "copy", topic, topic)[0] == 2
    assert ottla("topic", "copy", f"{topic}x", "y")[0] == 5
    assert ottla("topic", "diff", topic, f"{topic}x")[0] == 5
    copy = f"{topic}-times"
    settings = ("-c", "message.timestamp.type=LogAppendTime")
    assert ottla("topic", "create", copy, "-p", "3", *settings)[0] == 0
    code, _, err = ottla("topic", "copy", topic, copy)
    assert (code, "new times" in err) == (1, True), err
    code, _, err = ottla("topic", "copy", topic, f"{topic}-none", "--dry-run")
    assert (code, "would be made" in err) == (0, True), err
    assert ottla("topic", "describe", f"{topic}-none")[0] == 5


def test_a_topic_that_was_made_anew_is_no_continuation(ottla, topic):
    copy = f"{topic}-copy"
    assert ottla("topic", "copy", topic, copy)[0] == 0
    assert ottla("topic", "delete", topic, "--yes")[0] == 0
    deadline = time.monotonic() + PATIENCE_SECONDS
    while ottla("topic", "create", topic, "-p", "3")[0] != 0:
        assert time.monotonic() < deadline  # Kafka may still be deleting it.
    code, _, err = ottla("topic", "copy", topic, copy)
    assert (code, "another topic's copy" in err) == (1, True), err


def test_a_groups_offsets_stand_before_the_same_records(ottla, shown, topic, transactions):
    group, copy = f"{topic}-group", f"{topic}-copy"
    assert ottla("produce", topic, "-p", "0", "-q", text="last\n")[0] == 0
    end = shown("topic", "describe", topic)["partitions"][0]["end"]
    at = str(end - 1)
    assert ottla("group", "reset", group, "--topic", f"{topic}:0", "--to", at, "--yes")[0] == 0
    shown("topic", "copy", topic, copy, "--group", group)
    rows = {row["topic"]: row for row in shown("group", "describe", group)["partitions"]}
    assert rows[topic]["committed"] == end - 1
    assert (rows[copy]["committed"], rows[copy]["end"], rows[copy]["lag"]) == (3, 4, 1)
    assert ottla("topic", "copy", topic, copy, "--group", f"{group}-none")[0] == 5


def test_a_copy_goes_from_cluster_to_cluster(request, either, ottla, topic, ottla_server):
    name = "kafka_server" if either is ottla_server else "ottla_server"
    there = request.getfixturevalue(name).bootstrap
    where = ("--other-bootstrap", there)
    assert ottla("topic", "copy", topic, *where)[0] == 0

    def other(*arguments):
        return run_command(there, *arguments)

    assert records_of(other, topic) == records_of(ottla, topic)
    assert ottla("topic", "diff", topic, *where)[0] == 0
    code, _, err = ottla("topic", "copy", topic, "--other-bootstrap", "127.0.0.1:1")
    assert (code, "127.0.0.1:1" in err) == (3, True), err
