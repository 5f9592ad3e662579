"""What Produce says to records that cannot be appended. Asked of Apache Kafka 4.3.0 (``--target
kafka``).

Where Ottla answers better than Kafka on purpose, the row carries both codes.
"""

import gzip
import struct
import time
import uuid

import pytest

from tools.wire_client import batch, record, values_of, varint

GOOD = batch([b"a", b"b"])


def odd_record(tail, *, attributes=0):
    body = bytes([attributes]) + varint(0) + varint(0) + varint(-1) + varint(1) + b"a" + tail
    return varint(len(body)) + body


BAD_BATCHES = {
    "bad CRC": (batch(crc=1), 2),
    "magic 7": (batch(magic=7), 2),
    "magic -1": (batch(magic=-1), 2),
    "magic 1": (batch(magic=1), 87),
    "magic 0": (batch(magic=0), 87),
    "length 5": (batch(length=5), 2),
    "length 0": (batch(length=0), 2),
    "length -1": (batch(length=-1), 2),
    "length 48": (batch(length=48), 2),
    "length one too short": (batch(length=len(batch()) - 13), 2),
    "twenty zero bytes behind": (GOOD + bytes(20), 2),
    "cut by three bytes": (GOOD[:-3], 87),
    "ten zero bytes": (bytes(10), 87),
    "61 zero bytes": (bytes(61), 2),
    "two batches": (GOOD + GOOD, 87),
    "empty record set": (b"", 87),
    "count one too many": (batch([b"a", b"b"], count=3), 87),
    "count one too few": (batch([b"a", b"b"], count=1), 87),
    "count 0": (batch([], count=0, last_offset_delta=-1), 87),
    "count -1": (batch([b"a"], count=-1), 87),
    "count 2^31-1": (batch([b"a"], count=2**31 - 1, last_offset_delta=2**31 - 2), 87),
    "last offset delta too large": (batch([b"a", b"b"], last_offset_delta=2), 87),
    "last offset delta too small": (batch([b"a", b"b"], last_offset_delta=0), 87),
    "bytes behind the last record": (batch([b"a"], payload=record(0, b"a") + bytes(3)), 87),
    "record longer than the batch": (batch([b"a"], payload=b"\xfe\x07" + bytes(20)), 87),
    "record of length 0": (batch([b"a"], payload=b"\0"), 87),
    "header count -1": (batch([b"a"], payload=odd_record(varint(-1))), 87),
    "header count bomb": (batch([b"a"], payload=odd_record(varint(1000))), 87),
    "null header key": (
        batch([b"a"], payload=odd_record(varint(1) + varint(-1) + varint(-1))),
        87,
    ),
    "slack inside the record": (batch([b"a"], payload=odd_record(varint(0) + b"\0")), 87),
    "batch too large": (batch([b"x" * 1_048_588]), 10),
    "too large and a bad CRC": (batch([b"x" * 2_000_000], crc=1), 10),
    "gzip, count wrong": (
        batch(
            [b"a"],
            payload=gzip.compress(record(0, b"a")),
            attributes=1,
            count=2,
            last_offset_delta=1,
        ),
        87,
    ),
    "base offset 5": (batch(base_offset=5), 87),
    "base offset -1": (batch(base_offset=-1), 87),
    "control batch": (batch(attributes=0x20), 87),
    "transactional bit without a transactional id": (batch(attributes=0x10), 53),
    "sequence -1 of a producer": (batch(producer_id=50, producer_epoch=0, base_sequence=-1), 87),
}
BETTER_THAN_KAFKA = {
    "codec 5": (batch(attributes=5), 76),
    "codec 7": (batch(attributes=7), 76),
    "garbage gzip": (batch([b"a"], payload=b"garbage garbage", attributes=1), 87),
    "garbage snappy": (batch([b"a"], payload=b"garbage garbage", attributes=2), 87),
    "garbage lz4": (batch([b"a"], payload=b"garbage garbage", attributes=3), 87),
    "garbage zstd": (batch([b"a"], payload=b"garbage garbage", attributes=4), 87),
    "length 2^31-1": (batch(length=2**31 - 1), 87),
}
STRICTER_THAN_KAFKA = {
    "offset deltas 0, 0": batch([b"a", b"b"], payload=record(0, b"a") + record(0, b"b")),
    "offset deltas 1, 0": batch([b"a", b"b"], payload=record(1, b"a") + record(0, b"b")),
}
ACCEPTED = {
    "five bytes behind the batch": GOOD + bytes(5),
    "record attributes 1": batch([b"a"], payload=odd_record(varint(0), attributes=1)),
    "null key and value": batch([None]),
    "largest batch": batch([b"x" * (1_048_588 - 74)]),
    "leader epoch 77": batch(leader_epoch=77),
    "LogAppendTime bit": batch(attributes=8),
    "unknown attribute bits": batch(attributes=0x4000),
    "timestamp -1": batch([b"a"], base_timestamp=-1, max_timestamp=-1),
    "unknown producer": batch(producer_id=99, producer_epoch=0, base_sequence=0),
    "gzip": batch([b"a"], payload=gzip.compress(record(0, b"a")), attributes=1),
}


@pytest.fixture(scope="module")
def topic(target):
    from tools.wire_client import WireClient

    name = f"bad-{uuid.uuid4().hex[:8]}"
    with WireClient(target.bootstrap) as client:
        topic_id = client.create_topic(name, 2)
    return name, topic_id


@pytest.mark.parametrize(("records", "code"), BAD_BATCHES.values(), ids=BAD_BATCHES)
def test_row_18_bad_batch_is_refused_and_leaves_no_trace(wire, topic, records, code):
    name, _ = topic
    before = wire.list_offsets(name, [0])
    got = wire.produce(name, records)
    assert (got["error_code"], got["base_offset"]) == (code, -1), got
    assert wire.list_offsets(name, [0]) == before
    assert wire.produce(name, GOOD)["error_code"] == 0, "the connection or the partition is broken"


@pytest.mark.parametrize(("records", "code"), BETTER_THAN_KAFKA.values(), ids=BETTER_THAN_KAFKA)
def test_row_18_bad_batch_is_named_where_kafka_says_unknown_error(
    wire, topic, target_kind, records, code
):
    got = wire.produce(topic[0], records)
    assert got["error_code"] == (code if target_kind == "ottla" else -1), got


@pytest.mark.parametrize("records", STRICTER_THAN_KAFKA.values(), ids=STRICTER_THAN_KAFKA)
def test_batch_that_would_put_two_records_at_one_offset(wire, topic, target_kind, records):
    got = wire.produce(topic[0], records)
    assert got["error_code"] == (87 if target_kind == "ottla" else 0), got


@pytest.mark.parametrize("records", ACCEPTED.values(), ids=ACCEPTED)
def test_odd_but_legal_batch_is_accepted(wire, topic, records):
    got = wire.produce(topic[0], records)
    assert (got["error_code"], got["log_start_offset"]) == (0, 0), got
    assert got["base_offset"] >= 0


def test_null_record_set_is_refused(wire, topic, target_kind):
    if target_kind == "kafka":
        pytest.skip("Apache Kafka 4.3.0 never answers it")
    assert wire.produce(topic[0], None)["error_code"] == 87


@pytest.mark.parametrize("acks", [5, 2, -2])
def test_unknown_acks_are_refused(wire, topic, acks):
    got = wire.produce(topic[0], GOOD, acks=acks)
    assert (got["error_code"], got["base_offset"]) == (21, -1)


@pytest.mark.parametrize(
    "name", ["nobody-made-this", "../x", "a b", "", "x" * 250, ".", "..", "__transaction_state"]
)
def test_unknown_and_illegal_topics_are_unknown(wire, name):
    got = wire.produce(name, GOOD)
    expected = 17 if name.startswith("__") and is_there(wire, name) else 3
    assert (got["error_code"], got["base_offset"]) == (expected, -1)


def is_there(wire, name):
    """Whether anybody has used the coordinators of this broker yet."""
    answer = wire.call("metadata", 9, topics=[{"name": name}], allow_auto_topic_creation=False)
    return answer["topics"][0]["error_code"] == 0


def test_an_internal_topic_takes_nothing_from_clients(wire):
    wire.call("find_coordinator", 3, key="somebody", key_type=0)
    deadline = time.monotonic() + 20
    while not is_there(wire, "__consumer_offsets"):  # Kafka makes it behind its answer.
        assert time.monotonic() < deadline, "nobody made the topic"
        time.sleep(0.05)
    got = wire.produce("__consumer_offsets", GOOD)
    assert (got["error_code"], got["base_offset"]) == (17, -1)


@pytest.mark.parametrize("partition", [9, -1, 2**31 - 1])
def test_unknown_partition_is_unknown(wire, topic, partition):
    assert wire.produce(topic[0], GOOD, partition)["error_code"] == 3


@pytest.mark.parametrize("records", [batch(crc=1), batch(magic=1)], ids=["bad CRC", "magic 1"])
def test_acks_0_closes_on_error(wire, topic, records):
    data = [{"name": topic[0], "partition_data": [{"index": 0, "records": records}]}]
    wire.send_frame(wire.encode("produce", 9, acks=0, timeout=1000, topic_data=data))
    assert wire.is_closed_by_peer()


def test_acks_0_answers_nothing_and_stores(wire, topic):
    name, _ = topic
    before = wire.list_offsets(name, [1])[0][1]
    data = [{"name": name, "partition_data": [{"index": 1, "records": GOOD}]}]
    wire.send_frame(wire.encode("produce", 9, acks=0, timeout=1000, topic_data=data))
    deadline = time.monotonic() + 10
    while wire.list_offsets(name, [1]) == [(0, before)]:  # consumers see only what is fsynced
        assert time.monotonic() < deadline
    assert wire.list_offsets(name, [1]) == [(0, before + 2)]


def test_zstd_needs_version_7(wire, topic):
    records = batch([b"a"], payload=b"x", attributes=4)
    assert wire.produce(topic[0], records, version=6)["error_code"] == 76


@pytest.mark.parametrize("topic_id", [uuid.UUID(int=5), None], ids=["unknown", "zero"])
def test_unknown_topic_id_is_100(wire, topic_id):
    data = [{"topic_id": topic_id, "partition_data": [{"index": 0, "records": GOOD}]}]
    got = wire.call("produce", 13, acks=-1, timeout=1000, topic_data=data)
    partition = got["responses"][0]["partition_responses"][0]
    assert (partition["error_code"], got["node_endpoints"]) == (100, [])


def test_good_and_bad_partitions_do_not_touch_each_other(wire, topic):
    name, _ = topic
    before = wire.list_offsets(name, [0])[0][1]
    asked = [
        {
            "name": name,
            "partition_data": [
                {"index": 0, "records": GOOD},
                {"index": 1, "records": batch(crc=1)},
                {"index": 7, "records": GOOD},
            ],
        },
        {"name": "nobody-made-this", "partition_data": [{"index": 0, "records": GOOD}]},
    ]
    got = wire.call("produce", 9, acks=-1, timeout=1000, topic_data=asked)
    codes = {
        (answer["name"], partition["index"]): (partition["error_code"], partition["base_offset"])
        for answer in got["responses"]
        for partition in answer["partition_responses"]
    }
    assert codes == {
        (name, 0): (0, before),
        (name, 1): (2, -1),
        (name, 7): (3, -1),
        ("nobody-made-this", 0): (3, -1),
    }


def test_keyless_records_on_a_compacted_topic_are_named_one_by_one(wire, topic_name):
    wire.create_topic(topic_name, cleanup_policy="compact")
    got = wire.produce(topic_name, batch([b"a", b"b", b"c"], keys=[b"k", None, None]))
    assert got["error_code"] == 87
    assert [bad["batch_index"] for bad in got["record_errors"]] == [1, 2]


def test_no_more_than_a_hundred_records_are_named(wire, topic_name, target_kind):
    """Kafka names all of them: a million, in an answer of 57 MiB to a request of 0.8."""
    named = 300 if target_kind == "kafka" else 100
    wire.create_topic(topic_name, cleanup_policy="compact")
    got = wire.produce(topic_name, batch([b"a"] * 300))
    assert (got["error_code"], len(got["record_errors"])) == (87, named)
    far = batch([b"a"] * 300, base_timestamp=4_102_444_800_000)
    wire.create_topic(f"{topic_name}-times")
    got = wire.produce(f"{topic_name}-times", far)
    assert (got["error_code"], len(got["record_errors"])) == (32, named)


@pytest.mark.parametrize("timeout", [0, -1, -(2**31)])
def test_a_timeout_of_nothing_is_for_replicas_that_there_are_not(wire, topic, timeout):
    data = [{"name": topic[0], "partition_data": [{"index": 0, "records": GOOD}]}]
    for acks in (-1, 1):
        got = wire.call("produce", 9, acks=acks, timeout=timeout, topic_data=data)
        assert got["responses"][0]["partition_responses"][0]["error_code"] == 0


def test_timestamp_far_in_the_future_is_refused(wire, topic):
    got = wire.produce(topic[0], batch(base_timestamp=4_102_444_800_000))
    assert got["error_code"] == 32
    assert [bad["batch_index"] for bad in got["record_errors"]] == [0]


@pytest.mark.parametrize("version", range(3, 13))
def test_every_version_stores_the_same(wire, topic_name, version):
    wire.create_topic(topic_name)
    got = wire.produce(topic_name, GOOD, version=version)
    assert (got["error_code"], got["base_offset"]) == (0, 0)
    assert values_of(wire.fetch(topic_name)["records"]) == [(0, b"a"), (1, b"b")]
    bad = wire.produce(topic_name, batch(crc=1), version=version)
    assert (bad["error_code"], bad["base_offset"]) == (2, -1)


def test_an_old_produce_version_closes_though_it_is_advertised(wire, topic):
    got = wire.call("api_versions", 0)
    produce = next(api for api in got["api_keys"] if api["api_key"] == 0)
    assert (produce["min_version"], produce["max_version"]) == (0, 13)
    wire.send_frame(struct.pack(">hhih", 0, 1, 9, -1) + struct.pack(">hii", -1, 1000, 0))
    assert wire.is_closed_by_peer()


def test_record_set_of_no_topics_is_answered_empty(wire, topic):
    assert wire.call("produce", 9, acks=-1, timeout=100, topic_data=[])["responses"] == []
