"""Everyday tasks, each by one `ottla` command, against an Ottla and an Apache Kafka: equal answers.

Each task runs its commands against both and says what must come; what may differ (ids, ports,
directories, times of a broker's clock) is left out by name. The numbers are those of the review
that listed the tasks. 42, pipelines, is in ``test_pipeline.py``, for Spark's sake. 40 has no test:
who is connected and talks most, which no request of Kafka's protocol tells.
"""

import json
import re

import msgpack
import pytest

from tests.cli_tasks import NUMBERS, TIME, lines_of, made, open_transaction, without

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("tasks of the command line")]


def test_01_topics_are_made_listed_changed_and_deleted(both, name):
    def task(asked):
        asked.run(f"topic create {name} -p 3 -c retention.ms=1d")
        asked.run(f"topic create {name}", code=6)
        asked.run(f"topic alter {name} -c retention.ms=2d -c cleanup.policy=compact")
        told = asked.eventually(f"topic describe {name}", lambda told: len(told["configs"]) == 2)
        rows = {row["name"]: row for row in asked.shown("topic list")}
        asked.run(f"topic delete {name} --dry-run")
        asked.run(f"topic delete {name}x --yes", code=5)
        near = asked.err
        asked.run(f"topic delete {name} --yes")
        return without(told, "topic_id"), without(rows[name], "topic_id"), near

    told, row, near = both(task)
    assert row == {"name": name, "partitions": 3, "replicas": 1, "internal": False}
    assert [each["partition"] for each in told["partitions"]] == [0, 1, 2]
    assert told["configs"] == {
        "retention.ms": "172800000",
        "cleanup.policy": "compact",
    }
    assert f"did you mean {name}?" in near


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


def test_09_a_topic_is_copied_exactly_also_between_clusters(both, task_peers, name):
    others = {"ottla": "kafka", "kafka": "ottla"}
    records = [
        {"partition": 1, "timestamp": TIME, "key": {"base64": "/wA="}, "value": {"base64": "/g=="}},
        {"partition": 0, "timestamp": TIME + 1, "value": None, "headers": [["a", "1"], ["a", "2"]]},
        {"partition": 0, "timestamp": TIME + 2, "key": "", "value": "", "headers": [["b", None]]},
    ]

    def task(asked):
        made(asked, name, 2)
        asked.run(f"produce {name} --jsonl -q", stdin="\n".join(map(json.dumps, records)))
        other = task_peers[others[asked.kind]].bootstrap
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
        # Markers are written behind the end of a transaction.
        ended = asked.eventually(f"topic count {name}", lambda rows: rows[0]["end"] == 12)
        return (
            ended,
            asked.shown(f"topic count {name}:1 --from 4")[0]["records"],
        )

    rows, some = both(task)
    assert [(row["records"], row["offsets"]) for row in rows] == [(10, 12), (10, 10)]
    assert some == 6
