"""What Produce says to an idempotent producer's batches, in order and not.

Asked of Apache Kafka 4.3.0, too (``--target kafka``).
"""

import uuid

import pytest

from tools.wire_client import batch, values_of

NOW = 1_700_000_000_000
LAST_SEQUENCE = 2**31 - 1


@pytest.fixture
def send(wire):
    """Send a batch of producer 7 with as many records as asked; return (error, base offset)."""
    name = f"idempotent-{uuid.uuid4().hex[:8]}"
    wire.create_topic(name)

    def produce(sequence, count=1, *, producer_id=7, epoch=0):
        values = [b"%d" % n for n in range(count)]
        records = batch(
            values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )
        answer = wire.produce(name, records)
        return answer["error_code"], answer["base_offset"]

    produce.topic = name
    return produce


def test_each_of_the_last_five_batches_is_answered_with_its_first_offset_and_not_stored(wire, send):
    offsets = [send(sequence, 2) for sequence in range(0, 14, 2)]
    assert offsets == [(0, offset) for offset in range(0, 14, 2)]
    assert [send(sequence, 2) for sequence in range(4, 14, 2)] == offsets[2:]
    assert send(2, 2) == (45, -1)
    assert wire.list_offsets(send.topic, [0]) == [(0, 14)]
    assert len(values_of(wire.fetch(send.topic)["records"])) == 14


def test_a_duplicate_carries_the_time_of_the_original(wire, send):
    records = batch([b"a"], producer_id=7, producer_epoch=0, base_sequence=0)
    assert wire.produce(send.topic, records)["log_append_time"] is None
    again = wire.produce(send.topic, records)
    assert (again["error_code"], again["log_append_time"]) == (0, NOW)


@pytest.mark.parametrize("sequence", [0, 2, 7, LAST_SEQUENCE])
def test_a_gap_or_an_overlap_is_out_of_order(send, sequence):
    assert send(0, 2 if sequence == 0 else 1) == (0, 0)
    assert send(sequence) == (45, -1)


def test_an_unknown_producer_begins_anywhere(send):
    assert send(5) == (0, 0)
    assert send(6) == (0, 1)


def test_epochs(send):
    assert send(0, epoch=1) == (0, 0)
    assert send(1, epoch=0) == (47, -1)
    assert send(1, epoch=2) == (45, -1)
    assert send(0, epoch=2) == (0, 1)
    assert send(0, epoch=2) == (0, 1)
    assert send(1, epoch=1) == (47, -1)


def test_no_epoch_at_all(send):
    assert send(3, epoch=-1) == (0, 0)
    assert send(9, epoch=-1) == (0, 1)
    assert send(9, epoch=-1) == (0, 1)


def test_sequences_wrap(send):
    assert send(LAST_SEQUENCE) == (0, 0)
    assert send(0) == (0, 1)
    assert send(LAST_SEQUENCE - 1, 4, producer_id=8) == (0, 2)
    assert send(2, producer_id=8) == (0, 6)
    assert send(LAST_SEQUENCE - 1, 4, producer_id=8) == (0, 2)
