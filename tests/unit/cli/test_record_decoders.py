"""What keys and values mean; and that what means nothing is shown as it is."""

import struct

import pytest

from ottla.cli.record_decoders import Decoders
from ottla.records.record import Record


def decoded(how, data):
    shown = Decoders([how]).show(Record(value=data))
    return shown.value, shown.faults


@pytest.mark.parametrize(
    ("how", "data", "expected"),
    [
        ("json", b'{"a": [1, null]}', {"a": [1, None]}),
        ("hex", b"\x00\xff", "00ff"),
        ("base64", b"\x00\xff", "AP8="),
        ("text", "é".encode(), "é"),
        ("int32", struct.pack(">i", -7), -7),
        ("int64le", struct.pack("<q", 7), 7),
        ("uint8", b"\xff", 255),
        ("double", struct.pack(">d", 0.5), 0.5),
        ("float", struct.pack(">f", float("nan")), "nan"),
        ("json", None, None),
    ],
)
def test_bytes_mean_what_the_decoder_says(how, data, expected):
    assert decoded(how, data) == (expected, {})


@pytest.mark.parametrize(
    ("how", "data"),
    [("json", b"{"), ("json", b"[" * 100_000), ("text", b"\xff"), ("int32", b"123")],
)
def test_what_cannot_be_decoded_is_kept_and_marked(how, data):
    value, faults = decoded(how, data)
    assert value == data
    assert faults["value"].startswith(f"not {how}: ")


def test_message_pack():
    msgpack = pytest.importorskip("msgpack")
    data = msgpack.packb({"a": b"\xff", 1: [2.5, None]})
    assert decoded("msgpack", data) == ({"a": {"base64": "/w=="}, "1": [2.5, None]}, {})
    for bad in (b"\xc1", data + b"\x00", data[:-1], b"\x81\x80\x01"):
        assert decoded("msgpack", bad)[0] == bad


def test_keys_have_their_own_decoder_and_nulls_stay():
    decoders = Decoders(["key=int32", "value=json"])
    record = decoders.texts(Record(key=struct.pack(">i", 5), value=b' {"a":1}'))
    assert (record.key, record.value) == (b"5", b'{"a": 1}')
    assert decoders.texts(Record()) == Record()
    assert decoders.texts(Record(value=b"{")).value == b"{"
    assert decoders.fault_count == 1


@pytest.mark.parametrize("text", ["avrö", "headers=hex", "key=", "int128", ""])
def test_a_decoder_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="--decode"):
        Decoders([text])
