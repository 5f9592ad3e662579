"""Frames and headers that no honest client sends: rows 1-5 of the hostile-client table.

Every expectation was asked of Apache Kafka 4.3.0; ``--target kafka`` asks it again. To close is to
end the stream
without a byte of answer.
"""

import contextlib
import random
import struct
import threading
import time

import pytest

from tools.wire_client import Closed, WireClient, batch

MIB = 1 << 20


def header(key, version, *, flexible=False, client_id=b"c", correlation_id=7):
    start = struct.pack(">hhi", key, version, correlation_id)
    name = (
        struct.pack(">h", -1)
        if client_id is None
        else struct.pack(">h", len(client_id)) + client_id
    )
    return start + name + (b"\0" if flexible else b"")


METADATA_NONE_V9 = b"\x01\x01\0\0\0"
"""An empty array of topics, auto-create, two more booleans, no tags."""


def answer(connect, frame):
    client = connect(timeout_seconds=5)
    client.send_frame(frame)
    return client.receive_frame()


def assert_closed(connect, data):
    client = connect(timeout_seconds=5)
    try:
        client.send(data)
        got = client.socket.recv(1000)
    except (Closed, ConnectionResetError):
        return
    assert got == b"", f"answered with {got.hex()}"


@pytest.fixture
def bystander(connect, topic_name):
    """A well-behaved client that works all through the test, without one error."""
    client = connect()
    client.create_topic(topic_name)
    stop = threading.Event()
    slowest = []
    failures = []

    def work():
        number = 0
        while not stop.is_set():
            begin = time.monotonic()
            try:
                got = client.produce(topic_name, batch([b"%d" % number]))
                assert (got["error_code"], got["base_offset"]) == (0, number), got
                fetched = client.fetch(topic_name, number)
                assert fetched["error_code"] == 0, fetched
                assert fetched["high_watermark"] == number + 1, fetched
            except Exception as error:  # noqa: BLE001 - reported by the main thread
                failures.append(error)
                return
            slowest.append(time.monotonic() - begin)
            number += 1

    thread = threading.Thread(target=work)
    thread.start()
    yield slowest
    stop.set()
    thread.join()
    assert not failures, failures
    assert slowest, "the well-behaved client got nothing done"
    assert max(slowest) < 2.0, f"the well-behaved client waited {max(slowest):.2f} s"


@pytest.mark.parametrize(
    "size", [0, -1, -(2**31), 2**31 - 1, 104_857_601], ids=lambda size: f"size {size}"
)
def test_row_1_frame_size_outside_the_limits_closes_at_once(connect, size):
    assert_closed(connect, struct.pack(">i", size))


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(30),
    ],
    ids=["HTTP", "TLS"],
)
def test_row_1_other_protocols_close(connect, data):
    assert_closed(connect, data)


def test_row_2_big_declared_frame_without_bytes_takes_no_memory(
    connect, target, target_kind, bystander
):
    if target_kind == "kafka":
        pytest.skip("Apache Kafka allocates what is declared, and runs out of its heap")
    connect().call("api_versions", 0)
    before = target.rss_bytes()
    clients = [connect() for _ in range(50)]
    for client in clients:
        client.send(struct.pack(">i", 104_857_600) + b"\0" * 100)
    connect().call("api_versions", 0)
    grown = target.rss_bytes() - before
    for client in clients:
        client.socket.settimeout(0.0)
        with pytest.raises(BlockingIOError):  # nobody is answered, nobody is closed
            client.socket.recv(1)
    assert grown < 64 * MIB, f"50 declared frames of 100 MiB took {grown / MIB:.0f} MiB"


LENGTH_BOMBS = {
    "int32 array of 2^31-1": header(3, 1) + b"\x7f\xff\xff\xff",
    "compact array of 2^32-2": header(3, 9, flexible=True) + b"\xff\xff\xff\xff\x0f",
    "uvarint of six bytes": header(3, 9, flexible=True) + b"\xff\xff\xff\xff\xff\x01",
    "array of 10^6 in 20 bytes": header(3, 1) + struct.pack(">i", 10**6) + bytes(6),
    "compact string longer than the frame": header(3, 9, flexible=True) + b"\x02\xff\xff\x03ab",
    "string longer than the frame": header(3, 1) + struct.pack(">ih", 1, 500) + b"ab",
    "body cut short": header(3, 9, flexible=True) + b"\x02",
}


@pytest.mark.parametrize("frame", LENGTH_BOMBS.values(), ids=LENGTH_BOMBS)
def test_row_3_length_bomb_closes(connect, frame):
    assert_closed(connect, struct.pack(">i", len(frame)) + frame)


def test_row_3_length_bombs_take_no_memory(connect, target, bystander):
    connect().call("api_versions", 0)
    before = target.rss_bytes()
    for frame in list(LENGTH_BOMBS.values()) * 20:
        assert_closed(connect, struct.pack(">i", len(frame)) + frame)
    assert target.rss_bytes() - before < 64 * MIB


def tags(count):
    """``count`` empty unknown tagged fields, with rising tags."""
    out = bytearray()
    for number in (count, *(part for tag in range(count) for part in (tag, 0))):
        rest = number
        while rest > 127:
            out.append(rest & 127 | 128)
            rest >>= 7
        out.append(rest)
    return bytes(out)


def test_row_4_tagged_field_bomb_does_not_stall_the_others(connect, target, target_kind, bystander):
    before = target.rss_bytes()
    frame = header(3, 9) + tags(2_000_000) + METADATA_NONE_V9
    client = connect()
    begin = time.monotonic()
    if target_kind == "ottla":
        assert_closed(connect, struct.pack(">i", len(frame)) + frame)
        assert time.monotonic() - begin < 3.0
        assert target.rss_bytes() - before < 64 * MIB
    else:
        client.send_frame(frame)
        client.receive_frame()


@pytest.mark.parametrize(
    "frame",
    [
        header(3, 9) + b"\x03\x05\x01a\x06\x01b\x07\x00" + METADATA_NONE_V9,
        header(3, 9, flexible=True) + b"\x01\x01\0\0" + b"\x01\x64\x02ab",
    ],
    ids=["in the header", "in the body"],
)
def test_row_4_a_few_unknown_tagged_fields_are_skipped(connect, frame):
    assert answer(connect, frame)[:4] == struct.pack(">i", 7)


CLOSING = {
    "unknown key": header(999, 0),
    "key -1": header(-1, 0),
    "key 4, gone": header(4, 0),
    "key 52, of controllers only": header(52, 0, flexible=True) + b"\0",
    "key 56, between brokers only": header(56, 3, flexible=True) + bytes(8),
    "Metadata v99": header(3, 99),
    "Metadata v-1": header(3, -1),
    "Fetch v3": header(1, 3),
    "ListOffsets v0": header(2, 0),
    "CreateTopics v1": header(19, 1),
    "Produce v0": header(0, 0) + struct.pack(">hii", -1, 1000, 0),
    "Produce v2": header(0, 2) + struct.pack(">hii", -1, 1000, 0),
    "header of 2 bytes": b"\0\x12",
    "header of 7 bytes": b"\0\x12\0\0\0\0\0",
    "header without client id": header(18, 0)[:8],
    "client id longer than the frame": struct.pack(">hhih", 18, 0, 7, 500),
    "null topic name": header(3, 1) + struct.pack(">ih", 1, -1),
    "ApiVersions v99 with an old header": header(18, 99),
}


@pytest.mark.parametrize("frame", CLOSING.values(), ids=CLOSING)
def test_row_5_unserved_request_closes(connect, frame):
    assert_closed(connect, struct.pack(">i", len(frame)) + frame)


@pytest.mark.parametrize("version", [5, 99, -1])
def test_row_5_too_new_api_versions_is_answered_with_35_and_its_own_range(connect, version):
    got = answer(connect, header(18, version, flexible=True) + b"\x02x\x021\0")
    assert got.hex() == "00000007002300000001001200000004"


@pytest.mark.parametrize(
    ("name", "release"), [("bad name!", "1"), ("", "1"), ("-x", "1"), ("a", "a b")]
)
def test_row_5_bad_client_software_is_answered_with_42_and_nothing_else(wire, name, release):
    got = wire.call("api_versions", 3, client_software_name=name, client_software_version=release)
    assert (got["error_code"], got["api_keys"], got["finalized_features"]) == (42, [], [])


@pytest.mark.parametrize(
    "client_id", [None, b"\xff\xfe\xc3", b"c" * 20_000], ids=["null", "bad UTF-8", "20000 bytes"]
)
def test_row_5_any_client_id_is_accepted(connect, client_id):
    got = answer(connect, header(18, 0, client_id=client_id))
    assert got[:6] == struct.pack(">ih", 7, 0)


@pytest.mark.parametrize(
    "frame",
    [
        header(3, 0) + struct.pack(">i", 0) + b"xyz",
        header(3, 9, flexible=True) + METADATA_NONE_V9 + b"xyz",
    ],
    ids=["v0", "v9"],
)
def test_row_5_trailing_bytes_are_accepted(connect, frame):
    assert answer(connect, frame)[:4] == struct.pack(">i", 7)


def test_row_5_bad_utf8_in_a_topic_name_is_an_invalid_name(connect):
    got = answer(connect, header(3, 1) + struct.pack(">ih", 1, 2) + b"\xff\xfe")
    assert struct.pack(">ih", 1, 17) in got


def test_a_frame_may_come_byte_by_byte(connect):
    client = connect()
    frame = header(18, 0)
    for byte in struct.pack(">i", len(frame)) + frame:
        client.send(bytes([byte]))
    assert client.receive_frame()[:6] == struct.pack(">ih", 7, 0)


def test_many_frames_in_one_piece_are_answered_in_order(connect):
    client = connect()
    frames = b"".join(
        struct.pack(">i", len(frame)) + frame
        for frame in (header(18, 0, correlation_id=number) for number in range(300))
    )
    client.send(frames)
    got = [struct.unpack(">i", client.receive_frame()[:4])[0] for _ in range(300)]
    assert got == list(range(300))


def test_a_bad_frame_behind_a_good_one_does_not_take_its_answer(connect):
    client = connect()
    good = header(18, 0)
    client.send(struct.pack(">i", len(good)) + good + struct.pack(">i", -1))
    assert client.receive_frame()[:6] == struct.pack(">ih", 7, 0)
    with pytest.raises(Closed):
        client.receive_frame()


def test_random_garbage_never_disturbs_the_others(connect, target, bystander):
    chooser = random.Random(1)
    before = target.rss_bytes()
    for _ in range(200):
        key = chooser.choice([0, 1, 2, 3, 18, 19, 20, 22, 32, 37, 60, 75])
        frame = header(key, chooser.randrange(14), flexible=chooser.random() < 0.5)
        frame += chooser.randbytes(chooser.randrange(60))
        client = WireClient(target.bootstrap, timeout_seconds=0.2)
        with client, contextlib.suppress(Closed, TimeoutError):
            client.send_frame(frame)
            client.receive_frame()
    assert target.rss_bytes() - before < 64 * MIB
