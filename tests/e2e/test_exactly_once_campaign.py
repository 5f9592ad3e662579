"""The short form of tests/campaigns/exactly_once.py, and whether its judge sees what is wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.records.builder import build_batch
from ottla.records.control import (
    ControlType,
    EndTransactionMarker,
    build_end_transaction_marker,
)
from ottla.records.record import Record
from tests.campaigns.transforming import records
from tests.campaigns.transforming.hanging import Open, is_committed
from tests.campaigns.transforming.ledger import Ledger

CAMPAIGN = Path(__file__).resolve().parent.parent / "campaigns" / "exactly_once.py"
NODES = CAMPAIGN.with_name("exactly_once_nodes.py")
pytestmark = pytest.mark.slow


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("client", "count"),
    [
        (["--client", "confluent"], 20_000),
        (["--client", "ottla", "--protocol", "consumer"], 80_000),  # it is quicker
    ],
)
def test_a_transforming_application_is_exact_whoever_is_killed(client, count):
    options = [
        *client,
        "--records",
        str(count),
        "--batch",
        "100",
        "--abort-every",
        "5",
        "--seconds-max",
        "90",
    ]
    # A group needs some seconds between two ends of its broker.
    kills = ["--broker-kill", "3,6", "--application-kill", "1,4", "--session", "2"]
    done = subprocess.run(
        [sys.executable, CAMPAIGN, *options, *kills],
        capture_output=True,
        text=True,
        timeout=290,
    )
    assert done.stdout.strip(), done.stderr
    report = json.loads(done.stdout)
    assert report["problems"] == []
    # A quick client may be through before the broker's first end.
    assert sum(count for name, count in report.items() if name.endswith(" kills")) >= 1, report
    assert report["results_read"] == 2 * count + report["transactions"]
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(300)
@pytest.mark.skipif(sys.platform != "linux", reason="the campaign finds its nodes by /proc")
def test_it_is_exact_on_nodes_whose_leaders_move():
    count = 10_000
    options = ["--client", "ottla", "--protocol", "consumer", "--records", str(count)]
    options += ["--batch", "50", "--abort-every", "5", "--seconds-max", "120"]
    kills = ["--broker-kill", "1,2", "--application-kill", "3,6"]
    done = subprocess.run(
        [sys.executable, NODES, *options, *kills], capture_output=True, text=True, timeout=290
    )
    assert done.stdout.strip(), done.stderr
    report = json.loads(done.stdout)
    assert report["problems"] == []
    assert report["broker kills"] >= 1, report
    assert report["results_read"] == 2 * count + report["transactions"]
    assert done.returncode == 0, done.stdout + done.stderr


def results(numbers, key=b"t"):
    for number in numbers:
        value = records.transformed(records.make_input(number))
        for topic in (records.OUT, records.AUDIT):
            yield topic, records.partition_of(topic, number), key, value
    yield records.MANIFEST, 0, key, records.make_manifest(list(numbers))


def judged(found, count=8):
    ledger = Ledger("reader", count)
    for offset, (topic, partition, key, value) in enumerate(found):
        ledger.see(topic, partition, offset, key, value)
    ledger.judge()
    return ledger.problems


WHOLE = list(results(range(8)))


def test_the_judge_is_content_with_what_is_whole():
    assert judged(WHOLE) == []
    assert judged([*results(range(4), b"a"), *results(range(4, 8), b"b")]) == []


@pytest.mark.parametrize(
    ("what", "found"),
    [
        ("not in out", WHOLE[2:]),
        ("torn", WHOLE[:-1]),
        ("torn", [*WHOLE[:2], *WHOLE[3:]]),
        ("2. time", [*WHOLE, *results(range(1), b"again")]),
        ("was aborted", [*WHOLE, (records.OUT, 0, b"t-", records.MARK)]),
        ("behind", [*results(range(8, 16)), *WHOLE]),
        ("another partition", [(topic, 3, key, value) for topic, _, key, value in WHOLE]),
        ("says", [(records.OUT, 0, b"t", b"0:00000000"), *WHOLE[1:]]),
        ("torn", [*WHOLE[:-1], (records.MANIFEST, 0, b"other", WHOLE[-1][3])]),
    ],
)
def test_the_judge_sees(what, found):
    problems = judged(found, 16 if what == "behind" else 8)
    assert any(what in problem for problem in problems), problems


def test_the_judge_sees_a_reader_that_is_sent_back():
    ledger = Ledger("reader", 8)
    for _ in range(2):
        ledger.see(records.MANIFEST, 0, 5, b"t", b"0:0")
    assert "went back" in ledger.problems[0]


@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
def test_a_transaction_without_a_marker_is_decided_as_in_its_other_partitions(tmp_path, kind):
    marker = build_end_transaction_marker(
        EndTransactionMarker(kind, 3), producer_id=7, producer_epoch=5, timestamp_ms=1
    )
    written = build_batch([Record(timestamp=1, value=b"x")], producer_id=7, producer_epoch=4)
    (tmp_path / "out-1").mkdir()
    (tmp_path / "out-1" / "00000000000000000000.log").write_bytes(written + marker + written[:70])
    open_one = Open("out", 0, 7, 4, 0, -1)
    assert is_committed(open_one, tmp_path) is (kind is ControlType.COMMIT)
    assert not is_committed(open_one._replace(producer_id=8), tmp_path)
    assert not is_committed(open_one._replace(producer_epoch=6), tmp_path)
