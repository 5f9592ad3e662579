"""Fetch sessions (KIP-227). Asked of Apache Kafka 4.3.0 (``--target kafka``)."""

import time
import uuid

import pytest

from tools.wire_client import WireClient, batch

BATCH = batch([b"x" * 1000] * 2)


@pytest.fixture
def topic(target):
    """A topic of three partitions with two batches of two records in each; its id."""
    name = f"session-{uuid.uuid4().hex[:8]}"
    with WireClient(target.bootstrap) as client:
        topic_id = client.create_topic(name, 3)
        for partition in range(3):
            for _ in range(2):
                assert client.produce(name, BATCH, partition)["error_code"] == 0
    return name, topic_id


class Session:
    """One client's session: sends the id and the epoch that are due."""

    def __init__(self, wire, version, topic):
        self.wire = wire
        self.version = version
        self.ident = {"topic": topic[0]} if version < 13 else {"topic_id": topic[1]}
        self.id = 0
        self.epoch = 0

    def fetch(self, *wanted, forget=(), **fields):
        """Return the error code, and per partition its index, code and length of records."""
        rows = [
            {"partition": number, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
            for number, offset in wanted
        ]
        asked = {
            "max_wait": 100,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "session_id": self.id,
            "session_epoch": self.epoch,
            "topics": [{**self.ident, "partitions": rows}] if rows else [],
            "forgotten_topics_data": [{**self.ident, "partitions": list(forget)}] if forget else [],
        } | fields
        if self.version < 15:
            asked["replica_id"] = -1
        got = self.wire.call("fetch", self.version, **asked)
        if got["error_code"] == 0 and "session_epoch" not in fields:
            self.id = got["session_id"]
            self.epoch += 1
        return got["error_code"], [
            (part["partition_index"], part["error_code"], bool(part["records"]))
            for answer in got["responses"]
            for part in answer["partitions"]
        ]


@pytest.fixture(params=[7, 11, 12, 13, 16, 18])
def session(wire, topic, request):
    return Session(wire, request.param, topic)


def test_an_incremental_answer_tells_what_is_new(session, wire, topic):
    assert session.fetch((0, 4), (1, 0)) == (0, [(0, 0, False), (1, 0, True)])
    assert session.id != 0
    assert session.fetch((1, 4)) == (0, [])
    assert wire.produce(topic[0], BATCH, 0)["error_code"] == 0
    assert session.fetch() == (0, [(0, 0, True)])
    assert session.fetch((0, 6)) == (0, [])
    assert session.fetch((2, 4)) == (0, [(2, 0, False)])


def test_errors_are_told_every_time(session):
    session.fetch((0, 4), (1, 4))
    assert session.fetch((0, 99)) == (0, [(0, 1, False)])
    assert session.fetch() == (0, [(0, 1, False)])
    assert session.fetch((0, 4)) == (0, [(0, 0, False)])
    assert session.fetch((9, 0)) == (0, [(9, 3, False)])
    assert session.fetch() == (0, [(9, 3, False)])
    assert session.fetch(forget=[9]) == (0, [])


def test_wrong_epochs_and_the_end(session):
    session.fetch((0, 4), (1, 4))
    assert session.fetch(session_epoch=9) == (71, [])
    assert session.fetch(forget=[0]) == (0, [])
    last = session.id
    assert session.fetch(forget=[1]) == (0, [])
    assert session.id == 0
    assert session.fetch(session_id=last, session_epoch=session.epoch) == (70, [])


def test_closing_with_epoch_minus_1(session):
    session.fetch((0, 4))
    assert session.fetch(session_epoch=-1) == (0, [])
    assert session.fetch() == (70, [])


@pytest.mark.parametrize(("first", "then"), [(12, 13), (13, 12)])
def test_names_and_ids_do_not_mix(wire, topic, first, then):
    session = Session(wire, first, topic)
    session.fetch((0, 4))
    session.version = then
    assert session.fetch() == (106, [])


def test_what_was_answered_comes_last(session):
    session.fetch((0, 0), (1, 0), (2, 0), max_bytes=10)
    order = [session.fetch(max_bytes=10)[1][0][0] for _ in range(4)]
    assert order == [0, 1, 2, 0]


def test_a_parked_incremental_fetch_times_out_empty(session):
    session.fetch((0, 4))
    begin = time.monotonic()
    assert session.fetch(max_wait=300) == (0, [])
    assert time.monotonic() - begin > 0.25
