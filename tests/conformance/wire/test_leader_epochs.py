"""OffsetForLeaderEpoch and a Fetch's epochs. Asked of Apache Kafka 4.3.0 (``--target kafka``)."""

import uuid

import pytest

from tools.wire_client import WireClient, batch

BATCH = batch([b"x" * 1000] * 2)


@pytest.fixture(scope="module")
def topic(target):
    """A topic with four records of leader epoch 0 in partition 0, none in partition 1."""
    name = f"epoch-{uuid.uuid4().hex[:8]}"
    with WireClient(target.bootstrap) as client:
        client.create_topic(name, 2)
        for _ in range(2):
            assert client.produce(name, BATCH)["error_code"] == 0
    return name


ASKED = {
    "the epoch in force": ((0, -1, 0), (0, 0, 4)),
    "it, known to the client": ((0, 0, 0), (0, 0, 4)),
    "an empty partition": ((1, -1, 0), (0, 0, 0)),
    "an epoch to come": ((0, -1, 5), (0, -1, -1)),
    "no epoch": ((0, -1, -1), (0, -1, -1)),
    "a client ahead": ((0, 5, 0), (75, -1, -1)),
    "unknown partition": ((9, -1, 0), (3, -1, -1)),
    "partition -1": ((-1, -1, 0), (3, -1, -1)),
}


def ask(wire, version, topics):
    asked = {"replica_id": -1} if version >= 3 else {}
    return wire.call("offset_for_leader_epoch", version, topics=topics, **asked)["topics"]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_offset_for_leader_epoch(wire, topic, version):
    rows = [
        {"partition": index, "current_leader_epoch": current, "leader_epoch": epoch}
        for (index, current, epoch), _ in ASKED.values()
    ]
    (got,) = ask(wire, version, [{"topic": topic, "partitions": rows}])
    found = [(p["error_code"], p["leader_epoch"], p["end_offset"]) for p in got["partitions"]]
    assert dict(zip(ASKED, found, strict=True)) == {name: end for name, (_, end) in ASKED.items()}
    assert [p["partition"] for p in got["partitions"]] == [row["partition"] for row in rows]


@pytest.mark.parametrize("name", ["nobody-made-this", "../x", ""])
def test_offset_for_leader_epoch_of_an_unknown_topic(wire, name):
    row = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    (got,) = ask(wire, 4, [{"topic": name, "partitions": [row]}])
    assert [p["error_code"] for p in got["partitions"]] == [3]


DIVERGENCES = {
    "the same history": ((4, 0), (0, None)),
    "beyond the end of the epoch": ((5, 0), (0, (0, 4))),
    "an epoch to come": ((0, 5), (1, None)),
    "before the start": ((-1, 0), (1, None)),
    "no epoch": ((4, -2), (0, None)),
}


@pytest.mark.parametrize(("asked", "answer"), DIVERGENCES.values(), ids=DIVERGENCES)
def test_last_fetched_epoch(wire, topic, asked, answer):
    offset, epoch = asked
    got = wire.fetch(topic, offset=offset, last_fetched_epoch=epoch)
    end = got["diverging_epoch"]
    told = None if end["epoch"] < 0 else (end["epoch"], end["end_offset"])
    assert (got["error_code"], told, got["records"] or b"") == (*answer, b"")
