"""Records of KIP-848 groups are compared with bytes that a Kafka 4.3 wrote."""

import pytest

from ottla.coordinator.group.consumer import records
from ottla.coordinator.group.consumer.group import ConsumerGroup, ResolvedRegex
from ottla.coordinator.group.consumer.member import MemberState
from ottla.coordinator.records import StoredRecord
from ottla.errors import ErrorCode, KafkaError

TOPIC = "2bb7b54254ea4a7e9402907c4f40c8ee"
MEMBER_KEY = "00027431 00026d31".replace(" ", "")
"""Of the group t1 and the member m1."""
WIRE_MEMBER = "0000 00 00 05 77697265 0b 2f3132372e302e302e31 02 03 7431 01 00001388 00 01 00 01 00"
STATIC_MEMBER = (
    "0000 03 6931 02 72 05 77697265 01 01 03 612b 000007d0 08 756e69666f726d 01 00 01 00"
)
STABLE = (
    f"0000 00000002 00000000 00 02 {TOPIC} 03 00000000 0000000101 00 09 03 00000002 00000002 01 00"
)
REVOKING = f"0000 00000003 00000002 01 01 02 {TOPIC} 02 00000005 01 00 05 02 00000002 00"
WRITTEN = [
    ("000300027431", "0000 00000002 01 00 08 0000000000000007"),
    ("0005" + MEMBER_KEY, WIRE_MEMBER),
    ("0005" + MEMBER_KEY, STATIC_MEMBER),
    ("000600027431", "0000 00000002 01 00 08 0000019aa1b2c3d4"),
    ("0007" + MEMBER_KEY, f"0000 02 {TOPIC} 03 00000000 00000001 00 00"),
    ("0008" + MEMBER_KEY, STABLE),
    ("0008" + MEMBER_KEY, REVOKING),
    ("00100002743100" + "02612b", "0000 02 02 61 0000000000000063 0000019aa1b2c3d4 00"),
]


def stored(key, value, offset=0):
    return StoredRecord(offset, -1, bytes.fromhex(key), value)


def take(group, record):
    kind = int.from_bytes(record.key[:2], "big")
    return records.replay(group, kind, records.read_key(kind, record).name, record)


def taken(key, value):
    group = ConsumerGroup("t1")
    record = stored(key, bytes.fromhex(value))
    kind = int(key[:4], 16)
    assert records.read_key(kind, record).group == "t1"
    assert take(group, record)
    return group


def written(kind, group):
    make = {
        3: lambda: records.group_record("t1", group.epoch, group.metadata_hash),
        5: lambda: records.member_record("t1", group.members["m1"]),
        6: lambda: records.target_epoch_record(
            "t1", group.assignment_epoch, group.assignment_timestamp_ms
        ),
        7: lambda: records.target_record("t1", "m1", group.targets["m1"]),
        8: lambda: records.current_record("t1", group.members["m1"]),
        16: lambda: records.regex_record("t1", "a+", group.regexes["a+"]),
    }
    return make[kind]()


@pytest.mark.parametrize(("key", "value"), WRITTEN)
def test_what_kafka_wrote_is_written_again_to_the_byte(key, value):
    found = written(int(key[:4], 16), taken(key, value))
    assert (found.key.hex(), found.value.hex()) == (key, bytes.fromhex(value).hex())


def test_the_states_have_kafkas_numbers():
    assert taken(*WRITTEN[5]).members["m1"].state is MemberState.STABLE
    revoking = taken(*WRITTEN[6]).members["m1"]
    assert revoking.state is MemberState.UNREVOKED_PARTITIONS
    assert revoking.revoking == {bytes.fromhex(TOPIC): {5: 2}}


def test_a_state_of_a_later_kafka_is_unknown():
    key, value = WRITTEN[5]
    later = value.replace("00000000 00 02", "00000000 09 02")
    assert taken(key, later).members["m1"].state is MemberState.UNKNOWN


def test_a_regex_is_read():
    topics = frozenset(("a",))
    assert taken(*WRITTEN[7]).regexes == {"a+": ResolvedRegex(topics, 99, 0x19AA1B2C3D4)}


def test_each_record_may_be_the_first_after_compaction():
    for order in (WRITTEN, WRITTEN[::-1]):
        group = ConsumerGroup("t1")
        for key, value in order:
            take(group, stored(key, bytes.fromhex(value)))
        assert set(group.members) == {"m1"}


def test_tombstones_forget():
    group = ConsumerGroup("t1")
    for key, value in WRITTEN:
        take(group, stored(key, bytes.fromhex(value)))
    is_left = [take(group, stored(one.key.hex(), None)) for one in records.group_tombstones(group)]
    assert is_left[-1] is False
    assert all(is_left[:-1])
    left = (group.members, group.targets, group.regexes, group.owners)
    assert not any(left)


@pytest.mark.parametrize("value", ["", "0000", "0001 00000002 00", "0000 0000"])
def test_what_makes_no_sense_is_said(value):
    with pytest.raises(KafkaError) as refused:
        taken(WRITTEN[0][0], value)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    "key",
    [
        "0003",
        "0003 0005 61",
        "0003 0001 61 00",
        "0003 ffff",
        "0005 0001 61",
        "0005 0001 61 0002 62",
    ],
)
def test_a_key_that_makes_no_sense_is_said(key):
    record = stored(key, None)
    with pytest.raises(KafkaError) as refused:
        records.read_key(int(key[:4], 16), record)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
