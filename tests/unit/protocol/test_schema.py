"""The table language: columns, constructors, versions, equality."""

import pytest

from ottla.errors import ErrorCode, KafkaError, MalformedMessage
from ottla.ids import NULL_TOPIC_ID, TopicId
from ottla.protocol.schema import (
    Message,
    RecordBytes,
    Splice,
    Struct,
    array,
    boolean,
    bytes_,
    encode_into,
    float64,
    int8,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uint16,
    uint32,
    uuid,
)


class Leaf(Struct):
    number: int = int32()
    text: str = string("2+", default="absent")


class Place(Struct):
    epoch: int = int32(default=-1)
    offset: int = int64(default=-1)


class Everything(Message, api_key=999, versions="0-4", flexible="3+"):
    flag: bool = boolean()
    tiny: int = int8()
    small: int = int16()
    middle: int = int32()
    large: int = int64()
    port: int = uint16()
    mask: int = uint32()
    ratio: float = float64()
    topic_id: TopicId = uuid()
    name: str = string()
    rack: str | None = string(nullable="0+")
    blob: bytes = bytes_()
    maybe_blob: bytes | None = bytes_(nullable="0+", default=None)
    leaf: Leaf = struct(Leaf)
    maybe_leaf: Leaf | None = struct(Leaf, nullable="0+", default=None)
    numbers: list[int] = array(int32)
    names: list[str] = array(string)
    ids: list[TopicId] = array(uuid)
    leaves: list[Leaf] | None = array(Leaf, nullable="1+", default=[])
    batch: RecordBytes | Splice | None = records(nullable="0+", default=None)
    late: int = int32("4+", default=7)
    early: int = int32("0-1", default=8)
    place: Place | None = struct(Place, "3+", default=None, tag=0)
    level: int = int16("3+", default=5, tag=2)
    words: list[str] = array(string, "3+", default=[], tag=4)


class Batch(Message, api_key=998, versions="0-1", flexible="1+"):
    first: RecordBytes | Splice | None = records(nullable="0+")
    between: int = int8(default=1)
    second: RecordBytes | Splice | None = records(nullable="0+", default=None)


class Stretch:
    """Stands in for a region of a file."""

    length_bytes = 5

    def read(self) -> bytes:
        return b"hello"


def everything(**changes) -> Everything:
    values = {
        "flag": True,
        "tiny": -1,
        "small": -2,
        "middle": -3,
        "large": -4,
        "port": 65535,
        "mask": 4294967295,
        "ratio": 0.25,
        "topic_id": TopicId(bytes(range(16))),
        "name": "zürich",
        "rack": None,
        "blob": b"blob",
        "leaf": Leaf(number=1),
        "numbers": [1, -1],
        "names": ["a", ""],
        "ids": [NULL_TOPIC_ID],
    }
    return Everything(**{**values, **changes})


@pytest.mark.parametrize("version", range(5))
def test_every_type_makes_the_round_trip(version):
    message = everything(
        maybe_blob=b"",
        maybe_leaf=Leaf(number=2),
        leaves=[Leaf(number=3), Leaf(number=4)],
        batch=b"records",
    )
    assert Everything.decode(message.encode(version), version, strict=True) == message


@pytest.mark.parametrize("version", range(1, 5))
def test_null_is_not_empty(version):
    message = everything(leaves=None)
    back = Everything.decode(message.encode(version), version, strict=True)
    assert (back.rack, back.maybe_blob, back.maybe_leaf, back.leaves, back.batch) == (None,) * 5


def test_a_field_the_version_lacks_is_dropped_and_decodes_to_its_default():
    message = everything(late=1, early=1)
    assert Everything.decode(message.encode(4), 4).late == 1
    assert Everything.decode(message.encode(4), 4).early == 8
    assert Everything.decode(message.encode(0), 0).late == 7
    assert Everything.decode(message.encode(0), 0).early == 1


def test_nested_structs_follow_the_version_of_their_message():
    message = everything(leaf=Leaf(number=1, text="sent"))
    assert Everything.decode(message.encode(1), 1).leaf.text == "absent"
    assert Everything.decode(message.encode(2), 2).leaf.text == "sent"


def test_tagged_fields_at_their_default_cost_one_byte_and_others_travel():
    plain = everything()
    tagged = everything(place=Place(epoch=1), level=6, words=["x"])
    assert Everything.decode(tagged.encode(3), 3, strict=True) == tagged
    assert Everything.decode(plain.encode(3), 3, strict=True) == plain
    assert plain.encode(3)[-1] == 0
    assert tagged.encode(3)[len(plain.encode(3)) - 1] == 3
    assert Everything.decode(tagged.encode(2), 2) == plain


def test_null_for_a_field_that_is_not_nullable_is_malformed():
    with pytest.raises(MalformedMessage, match="leaves is null"):
        Everything.decode(everything(leaves=None).encode(1), 0)


def test_records_are_a_window_on_the_received_bytes():
    encoded = Batch(first=b"window").encode(0)
    buffer = memoryview(encoded)
    message, _ = Batch.decoder(0)(buffer, 0, len(buffer))
    assert isinstance(message.first, memoryview)
    assert message.first.obj is encoded


@pytest.mark.parametrize("version", [0, 1])
def test_small_records_are_copied_and_large_ones_spliced(version):
    large = memoryview(bytes(16 * 1024))
    message = Batch(first=b"small", second=large)
    out, splices = bytearray(b"head"), []
    encode_into(message, version, out, splices)
    assert [what for _, what in splices] == [large]
    assert splices[0][1] is large
    position = splices[0][0]
    assert bytes(out[4:position]) + large + out[position:] == message.encode(version)
    assert Batch.decode(message.encode(version), version, strict=True) == message


@pytest.mark.parametrize("version", [0, 1])
def test_a_stretch_of_a_file_is_never_read_by_encode_into(version):
    stretch = Stretch()
    message = Batch(first=stretch, second=stretch)
    out, splices = bytearray(), list[tuple[int, object]]()
    Batch.encoder(version)(message, out, splices)
    assert [what for _, what in splices] == [stretch, stretch]
    in_one_piece = Batch(first=b"hello", second=b"hello").encode(version)
    assert message.encode(version) == in_one_piece
    assert len(out) == len(in_one_piece) - 10


def test_a_field_without_default_must_be_given():
    with pytest.raises(TypeError, match="number"):
        Leaf()
    with pytest.raises(TypeError, match="colour"):
        Leaf(number=1, colour="red")


def test_default_lists_are_not_shared():
    one, other = everything(), everything()
    one.leaves.append(Leaf(number=1))
    assert other.leaves == []
    decoded = [Everything.decode(other.encode(2), 2) for _ in range(2)]
    decoded[0].words.append("x")
    assert decoded[1].words == []


def test_messages_compare_by_value_and_say_what_they_hold():
    assert Leaf(number=1) == Leaf(number=1)
    assert Leaf(number=1) != Leaf(number=2)
    assert Leaf(number=1) != Place()
    assert repr(Leaf(number=1, text="x")) == "Leaf(number=1, text='x')"
    with pytest.raises(AttributeError):
        Leaf(number=1).colour = "red"


def test_a_version_outside_the_table_is_unsupported():
    with pytest.raises(KafkaError) as failure:
        Everything.decode(b"", 5)
    assert failure.value.code is ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(KafkaError):
        everything().encode(-1)


def test_codecs_are_compiled_once():
    assert Everything.decoder(3) is Everything.decoder(3)
    assert Everything.encoder(3) is Everything.encoder(3)
    assert Everything.decoder(3) is not Everything.decoder(4)


def test_a_gap_in_the_versions_without_default_is_found_when_compiled():
    class Gap(Message, api_key=997, versions="0-1"):
        number: int = int32("1+")

    with pytest.raises(TypeError, match=r"Gap\.number is not in version 0"):
        Gap.decoder(0)


def test_records_cannot_hide_in_a_tagged_field():
    class Inner(Struct):
        batch: RecordBytes | None = records(nullable="0+")

    class Outer(Message, api_key=996, versions="0", flexible="0+"):
        inner: Inner | None = struct(Inner, default=None, tag=0)

    with pytest.raises(TypeError, match="records inside a tagged field"):
        Outer.encoder(0)
