"""What judges of one thing each say: of stamps, sizes of answers, and retention."""

import random
import uuid
from types import SimpleNamespace

import pytest

from tests.campaigns.administering.history import Altered, Call, Creation, History, Verdict
from tests.campaigns.administering.records import APPEND_TIME, make_batch, parse
from tests.campaigns.administering.writing import Writer
from tests.simulation.clients.readers import Reader, first_size
from tests.simulation.stamps import misstamped
from tests.simulation.upkeep import overdue_of

TOPIC_ID = uuid.UUID(int=7)


def a_topic(history, **configs):
    configs = {key.replace("_", "."): value for key, value in configs.items()}
    call = Call()
    call.answer(Verdict.OK)
    topic = history.topics[TOPIC_ID] = Creation("t", call, configs, 1).topic(TOPIC_ID)
    return topic


def written(history, topic, count, timestamp_ms, **fields):
    """Return as read so many batches that were acknowledged one behind the other."""
    writer, offset, read = Writer(history, random.Random(1), 1), 0, []
    for _ in range(count):
        batch, data = writer.make(topic, 0, timestamp_ms=timestamp_ms)
        data = make_batch(
            batch.ids, TOPIC_ID, has_tombstones=True, timestamp_ms=timestamp_ms, **fields
        )
        data = offset.to_bytes(8, "big") + data[8:]
        writer.judge(batch, 0, offset)
        offset += len(batch.ids)
        read += parse(data)
    return read


@pytest.mark.parametrize(
    ("asked", "attributes", "wrong"),
    [
        ("CreateTime", 0, 0),
        ("CreateTime", APPEND_TIME, 1),
        ("LogAppendTime", 0, 1),
        ("LogAppendTime", APPEND_TIME, 0),
    ],
)
def test_a_batch_has_the_kind_of_time_that_its_topic_asks_for(asked, attributes, wrong):
    history = History()
    topic = a_topic(history, message_timestamp_type=asked)
    now_ms = int(Call().sent * 1000)
    read = written(history, topic, 1, now_ms, attributes=attributes)
    assert len(list(misstamped(history, topic, read, 0.0))) == wrong


def test_an_append_time_that_is_far_from_the_call_is_found():
    history = History()
    topic = a_topic(history, message_timestamp_type="LogAppendTime")
    now_ms = int(Call().sent * 1000)
    read = written(history, topic, 1, now_ms - 60_000, attributes=APPEND_TIME)
    assert "was appended at" in next(misstamped(history, topic, read, 0.0))
    assert list(misstamped(history, topic, read, 60.0)) == [], "its clock may have been behind"


def test_an_option_that_was_taken_back_may_be_the_default():
    history = History()
    topic = a_topic(history, retention_ms="1000")
    history.altered.append(Altered("t", Call(), {"retention.ms": None}))
    values = [value for value, _, _ in history.possible(topic, "retention.ms", "5")]
    assert values == ["1000", "5"]


@pytest.mark.parametrize(
    ("allowed", "is_due"),
    [
        ({"retention.ms": {"20000"}}, True),
        ({"retention.ms": {"20000"}, "cleanup.policy": {"compact"}}, False),
        ({"retention.ms": {"20000", "-1"}}, False),
        ({"retention.ms": {None}}, False),
        ({}, False),
    ],
)
def test_what_is_overdue_is_waited_for_when_it_surely_fills_a_segment(allowed, is_due):
    history = History()
    options = {"internal_segment_bytes": "2500", "retention_ms": "20000"}
    topic = a_topic(history, **options)
    now = Call().sent
    read = written(history, topic, 40, int(now * 1000) - 60_000)
    records = [one for each in read for one in each.records]
    assert bool(overdue_of(history, topic, 0, records, allowed, 0.0, now)) is is_due
    assert not overdue_of(history, topic, 0, records[:5], allowed, 0.0, now), "less than a segment"
    assert not overdue_of(history, topic, 0, records, allowed, 40.0, now), "its clock is behind"


def judged(sizes, max_bytes, part_bytes):
    """Return the problems of an answer with one batch in each of some partitions."""
    records = [
        bytes(8) + (batch - 12).to_bytes(4, "big") + bytes(size - 12) for size, batch in sizes
    ]
    told = [SimpleNamespace(records=each) for each in records]
    answer = SimpleNamespace(responses=[SimpleNamespace(partitions=told)])
    problems = []
    reader = SimpleNamespace(name="r", world=SimpleNamespace(problem=problems.append))
    assert [first_size(each) for each in records] == [batch for _, batch in sizes]
    Reader._judge_size(reader, answer, max_bytes, part_bytes)
    return problems


@pytest.mark.parametrize(
    ("sizes", "max_bytes", "part_bytes", "wrong"),
    [
        ([(300, 300)], 1, 1, 0),
        ([(300, 115), (412, 412)], 1000, 300, 0),  # The second was read first.
        ([(301, 115)], 1000, 300, 1),
        ([(400, 400), (412, 412)], 1000, 300, 1),
        ([(300, 300), (200, 200)], 499, 300, 1),
        ([(300, 300), (200, 200)], 500, 300, 0),
    ],
)
def test_an_answer_of_fetch_keeps_its_limits_but_for_one_batch(sizes, max_bytes, part_bytes, wrong):
    assert len(judged(sizes, max_bytes, part_bytes)) == wrong
