"""The judge of tests/campaigns/cut_networks.py finds each kind of broken promise."""

import pytest

from tests.campaigns.networks.copies import Copies
from tests.campaigns.networks.ledger import Ledger, value_of
from tools.wire_client import batch


@pytest.fixture
def ledger():
    """Records 0 to 9 were sent once, 10 to 12 twice; 0 to 9 were acknowledged and seen."""
    ledger = Ledger(3)
    ledger.send(0, 10)
    ledger.send(10, 3)
    ledger.send(10, 3)
    ledger.acknowledge(0, 10, 0)
    for number in range(10):
        ledger.see(number, value_of(3, number, 1))
    return ledger


def read_all(ledger, attempts):
    for number, attempt in enumerate(attempts):
        ledger.read_again(number, value_of(3, number, attempt))
    ledger.end(len(attempts))


@pytest.mark.parametrize("end", [10, 13])
@pytest.mark.parametrize("attempt", [1, 2])
def test_what_nobody_was_promised_may_be_there_or_not(ledger, end, attempt):
    read_all(ledger, [1] * 10 + [attempt] * (end - 10))
    assert not ledger.problems


def test_an_acknowledged_record_that_is_gone_is_found(ledger):
    read_all(ledger, [1] * 9)
    assert ledger.problems == [
        "3: 10 were acknowledged, 9 are there",
        "3: 10 were seen, 9 are there",
    ]


def test_a_record_that_was_seen_and_is_gone_is_found(ledger):
    ledger.see(10, value_of(3, 10, 1))
    read_all(ledger, [1] * 10)
    assert ledger.problems == ["3: 11 were seen, 10 are there"]


def test_a_record_that_vanished_and_was_sent_again_is_found(ledger):
    ledger.see(10, value_of(3, 10, 1))
    read_all(ledger, [1] * 10 + [2])
    assert ledger.problems == ["3: offset 10 has attempt 2, 1 was seen there"]


@pytest.mark.parametrize(
    ("number", "attempt"),
    [(9, 1), (11, 1), (13, 1), (10, 3)],
    ids=("twice", "gap", "never", "attempt"),
)
def test_a_record_in_the_wrong_place_is_found(ledger, number, attempt):
    ledger.see(10, value_of(3, number, attempt))
    assert len(ledger.problems) == 1
    assert "3: offset 10 has " in ledger.problems[0]


@pytest.mark.parametrize("value", [None, b"", b"3/10/1/", b"4/10/1/" + b"x" * 170])
def test_a_value_that_nobody_has_sent_is_found(ledger, value):
    ledger.see(10, value)
    assert "3: offset 10 has " in ledger.problems[0]


def test_an_answer_with_another_offset_is_found(ledger):
    ledger.acknowledge(10, 3, 11)
    assert ledger.problems == ["3: record 10 was acknowledged at offset 11"]


@pytest.mark.parametrize("offset", [9, 11])
def test_a_consumer_that_skips_or_repeats_is_found(ledger, offset):
    ledger.see(offset, value_of(3, offset, 1))
    assert ledger.problems == [f"3: a consumer got offset {offset} after 9"]


def test_more_than_was_sent_is_found(ledger):
    ledger.end(14)
    assert ledger.problems == ["3: 13 were sent, 14 are there"]


class Replicas:
    """Files of three replicas; each has other segments."""

    def __init__(self, directory):
        self.directories = [directory / str(node) for node in range(3)]
        for each in self.directories:
            each.mkdir()
        self.copies = Copies("t-0", self.directories)

    def write(self, node, *batches, segment=0):
        path = self.directories[node] / f"{segment:020d}.log"
        with path.open("ab") as file:
            file.write(b"".join(batches))

    def write_all(self, *batches):
        for node in range(3):
            self.write(node, *batches)


@pytest.fixture
def replicas(tmp_path):
    return Replicas(tmp_path)


def at(offset, value=b"v", count=1, leader_epoch=0):
    return batch([value] * count, base_offset=offset, leader_epoch=leader_epoch)


def test_equal_replicas_are_equal_in_any_segments_and_with_space_behind(replicas):
    replicas.write_all(at(0, count=2))
    assert replicas.copies.compare(is_over=True) == []
    assert replicas.copies.end_offset == 2
    replicas.write(0, at(2), at(3))
    replicas.write(1, at(2), segment=2)
    replicas.write(1, at(3), bytes(4096), segment=3)
    replicas.write(2, at(2), bytes(100))
    replicas.write(2, at(3), segment=3)
    assert replicas.copies.compare(is_over=True) == []
    assert replicas.copies.end_offset == 4


def test_a_replica_that_is_behind_is_told_only_in_the_end(replicas):
    replicas.write_all(at(0))
    replicas.write(1, at(1))
    assert replicas.copies.compare() == []
    assert replicas.copies.compare(is_over=True) == ["t-0: behind 1 there are [0, 1, 0] batches"]


@pytest.mark.parametrize(
    "other", [at(1, b"w"), at(1, leader_epoch=1), at(1, count=2), at(2)], ids=list("vecg")
)
def test_replicas_that_differ_are_found_again_and_again(replicas, other):
    replicas.write_all(at(0))
    replicas.write(0, at(1))
    replicas.write(1, at(1))
    replicas.write(2, other)
    for _ in range(2):
        (problem,) = replicas.copies.compare()
        assert problem.startswith("t-0: the replicas differ at 1: ")
    replicas.copies.begin_again()
    assert len(replicas.copies.compare()) == 1


def test_a_gap_that_all_replicas_have_is_found(replicas):
    replicas.write_all(at(0), at(2))
    assert replicas.copies.compare() == ["t-0: 2 follows on 1"]
