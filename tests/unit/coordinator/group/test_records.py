"""Records of offsets and classic groups are compared with bytes that Apache Kafka 4.3 wrote."""

import pytest

from ottla.coordinator.group import record_bytes
from ottla.coordinator.group.classic import records as classic_records
from ottla.coordinator.group.classic.group import ClassicGroup, GroupState, Member, Protocol
from ottla.coordinator.group.offsets import records
from ottla.coordinator.group.offsets.committed import CommittedOffset, OffsetKey
from ottla.coordinator.records import StoredRecord
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicId

TOPIC_ID = TopicId(bytes.fromhex("a6d698f30c9d4399acd87e4714e92f75"))
KEY = OffsetKey("g1", "t", 0)
KEY_BYTES = bytes.fromhex("0001 0002 6731 0001 74 00000000")
COMMITS = [
    (
        CommittedOffset(5, -1, "hey", 0x01A1FE7C4225, topic_id=TOPIC_ID),
        "0004 0000000000000005 ffffffff 04 686579 000001a1fe7c4225 01 00 10" + TOPIC_ID.hex(),
    ),
    (
        CommittedOffset(7, 0, "", 0x01A1FE7C42A7, topic_id=TOPIC_ID),
        "0004 0000000000000007 00000000 01 000001a1fe7c42a7 01 00 10" + TOPIC_ID.hex(),
    ),
    (
        CommittedOffset(6, -1, "r", 0x01A1FE7C42C0, 0x01A1FE7D2D20),
        "0001 0000000000000006 0001 72 000001a1fe7c42c0 000001a1fe7d2d20",
    ),
    (
        CommittedOffset(6, 3, "r", 0x01A1FE7C42C0),
        "0003 0000000000000006 00000003 0001 72 000001a1fe7c42c0",
    ),
]


def stored(key, value, offset=0):
    return StoredRecord(offset, -1, key, value)


@pytest.mark.parametrize(("value", "text"), COMMITS)
def test_offset_commits(value, text):
    commit = (KEY.partition, value.offset, value.leader_epoch, value.metadata)
    ((key, data),) = records.offset_records(
        *(KEY.group, KEY.topic, value.topic_id, [commit]),
        *(value.commit_timestamp_ms, value.expire_timestamp_ms),
    )
    assert key == KEY_BYTES
    assert data == bytes.fromhex(text)
    back = stored(key, data, 12)
    assert records.OffsetKeyReader().read(back) == KEY
    assert records.read_offset_value(back) == value._replace(record_offset=12)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0000 0000000000000006 0001 72 00000000000000aa", CommittedOffset(6, -1, "r", 170)),
        (
            "0001 0000000000000006 0001 72 00000000000000aa 00000000000000bb",
            CommittedOffset(6, -1, "r", 170, 187),
        ),
        ("0002 0000000000000006 0001 72 00000000000000aa", CommittedOffset(6, -1, "r", 170)),
    ],
)
def test_older_offset_commits_are_read(text, expected):
    for kind in (b"\x00\x00", b"\x00\x01"):
        back = stored(kind + KEY_BYTES[2:], bytes.fromhex(text))
        assert record_bytes.key_type(back) in records.OFFSET_KEY_TYPES
        assert records.OffsetKeyReader().read(back) == KEY
        assert records.read_offset_value(back) == expected._replace(record_offset=0)


def test_tombstones():
    assert records.offset_tombstone(KEY) == (KEY_BYTES, None)
    assert classic_records.group_tombstone("c1") == (bytes.fromhex("0002 0002 6331"), None)


def test_a_new_group():
    group = ClassicGroup("c1", 0x01A1FE7C4377)
    record = classic_records.new_group_record(group)
    assert record.key == bytes.fromhex("0002 0002 6331")
    assert record.value == bytes.fromhex("0003 0000 00000000 ffff ffff 000001a1fe7c4377 00000000")
    back = classic_records.read_group("c1", stored(*record))
    assert (back.state, back.protocol_type, back.generation) == (GroupState.EMPTY, None, 0)


def make_group():
    group = ClassicGroup("c1", 1)
    for number, instance_id in enumerate(("i", None)):
        member = Member(
            f"m{number}",
            instance_id=instance_id,
            client_id="c",
            client_host="/h",
            rebalance_timeout_ms=2,
            session_timeout_ms=1,
            protocols=[Protocol("range", b"\x00\x01\x00\x00\x00\x01\x00\x01t"), Protocol("x", b"")],
        )
        member.awaiting_join = object()
        group.add(member, "consumer")
    group.transition(GroupState.PREPARING_REBALANCE, 2)
    group.next_generation(3)
    return group


def test_a_group_with_members():
    group = make_group()
    record = classic_records.group_record(group, {"m0": b"A"})
    assert record.value == (
        bytes.fromhex("0003") + b"\x00\x08consumer" + bytes.fromhex("00000001") + b"\x00\x05range"
        b"\x00\x02m0" + (3).to_bytes(8, "big") + (2).to_bytes(4, "big")
        + b"\x00\x02m0\x00\x01i\x00\x01c\x00\x02/h" + bytes.fromhex("00000002 00000001 00000009")
        + b"\x00\x01\x00\x00\x00\x01\x00\x01t" + bytes.fromhex("00000001") + b"A"
        + b"\x00\x02m1\xff\xff\x00\x01c\x00\x02/h" + bytes.fromhex("00000002 00000001 00000009")
        + b"\x00\x01\x00\x00\x00\x01\x00\x01t" + bytes.fromhex("00000000")
    )  # fmt: skip
    back = classic_records.read_group("c1", stored(*record))
    back.check()
    assert (back.state, back.generation, back.protocol) == (GroupState.STABLE, 1, "range")
    assert (back.leader, back.static_members) == ("m0", {"i": "m0"})
    assert back.subscribed_topics == {"t"}
    assert back.members["m0"].assignment == b"A"
    assert back.members["m1"].session_timeout_ms == 1


def test_a_key_that_looks_like_the_last_one_is_not_taken_for_it():
    reader = records.OffsetKeyReader()
    keys = [
        b"\x00\x01\x00\x00",  # cut: the head of nothing
        records.offset_key(KEY),
        records.offset_key(KEY._replace(partition=-2)),
        records.offset_key(KEY) + b"more",
        records.offset_key(KEY) + b"than",
        records.offset_key(KEY._replace(topic="other")),
        records.offset_key(KEY)[:-1],
    ]
    for key in keys:
        one = stored(key, b"")
        try:
            wanted = records.OffsetKeyReader().read(one)
        except KafkaError:
            with pytest.raises(KafkaError):
                reader.read(one)
        else:
            assert reader.read(one) == wanted
    assert reader.read(stored(keys[3], b"")) == KEY


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_a_group_is_read(version):
    from ottla.coordinator.group.classic import tables

    written = memoryview(classic_records.group_record(make_group(), {}).value)
    value, _ = tables.GroupMetadataValue.decoder(3)(written, 2, len(written))
    data = version.to_bytes(2, "big") + value.encode(version)
    back = classic_records.read_group("c1", stored(b"", data))
    assert list(back.members) == ["m0", "m1"]
    assert back.members["m1"].rebalance_timeout_ms == (1 if version == 0 else 2)
    assert back.state_timestamp_ms == (-1 if version < 2 else 3)
    assert back.members["m0"].instance_id == ("i" if version >= 3 else None)


@pytest.mark.parametrize(
    ("read", "record"),
    [
        (record_bytes.key_type, stored(b"\x00", b"")),
        (records.OffsetKeyReader().read, stored(b"\x00\x01\x00\x09g", b"")),
        (classic_records.read_group_key, stored(b"\x00\x02\x00", b"")),
        (records.read_offset_value, stored(b"", b"")),
        (records.read_offset_value, stored(b"", b"\x00\x05")),
        (records.read_offset_value, stored(b"", b"\x00\x04\x00\x00")),
        (lambda one: classic_records.read_group("g", one), stored(b"", b"\x00\x03\x00\x00\x00")),
    ],
)
def test_what_makes_no_sense_is_called_corrupt(read, record):
    with pytest.raises(KafkaError) as refusal:
        read(record)
    assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE
