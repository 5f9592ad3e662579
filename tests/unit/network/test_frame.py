"""Frames are cut out of a byte stream, and memory grows only with the bytes that arrive."""

import struct

import pytest

from ottla.errors import MalformedMessage
from ottla.network.frame import SCRATCH_BYTES, FrameReader, ReceiveBudget

FRAME_MAX = 100_000


@pytest.fixture
def budget():
    return ReceiveBudget(1 << 24)


@pytest.fixture
def reader(budget):
    return FrameReader(budget, FRAME_MAX)


def framed(body):
    return struct.pack(">i", len(body)) + body


def feed(reader, data):
    """Receive ``data`` as a connection does: what fits, frames out, settle; return the frames."""
    frames = []
    data = memoryview(data)
    while data:
        writable = reader.writable()
        assert writable is not None
        assert len(writable) > 0
        count = min(len(writable), len(data))
        writable[:count] = data[:count]
        reader.received(count)
        data = data[count:]
        while (frame := reader.next_frame()) is not None:
            frames.append(bytes(frame))
        reader.settle()
    return frames


def test_every_split_point_gives_the_same_frames(budget):
    bodies = [b"12345678", bytes(range(40)), b"x" * 300]
    stream = b"".join(map(framed, bodies))
    for at in range(len(stream) + 1):
        reader = FrameReader(budget, FRAME_MAX)
        assert feed(reader, stream[:at]) + feed(reader, stream[at:]) == bodies
        assert reader.held_bytes == 0
        reader.release()
    assert budget.used_bytes == 0


def test_byte_by_byte(reader, budget):
    bodies = [b"12345678", b"abcdefghij"]
    stream = b"".join(map(framed, bodies))
    assert [f for byte in stream for f in feed(reader, bytes([byte]))] == bodies
    reader.release()
    assert budget.used_bytes == 0


@pytest.mark.parametrize("length", [0, 7, -1, -(2**31), FRAME_MAX + 1, 2**31 - 1, 0x47455420])
def test_an_impossible_length_is_refused_from_its_four_bytes(reader, length):
    view = reader.writable()
    view[:4] = struct.pack(">i", length)
    reader.received(3)
    assert not reader.has_frame
    assert reader.next_frame() is None
    reader.received(1)
    assert reader.has_frame
    with pytest.raises(MalformedMessage, match=str(length)):
        reader.next_frame()


def test_the_largest_frame_passes(reader):
    assert feed(reader, framed(bytes(FRAME_MAX))) == [bytes(FRAME_MAX)]


def test_a_declared_size_is_not_allocated(budget):
    reader = FrameReader(budget, 100 * 1024 * 1024)
    feed(reader, struct.pack(">i", 100 * 1024 * 1024) + b"a few bytes")
    assert budget.used_bytes <= 4096
    reader.release()


def test_the_buffer_grows_with_what_arrives_and_not_beyond_the_frame(budget):
    reader = FrameReader(budget, 1 << 20)
    feed(reader, struct.pack(">i", 1 << 20))
    sent = 4
    while sent + 1000 < (1 << 20):
        assert feed(reader, bytes(1000)) == []
        sent += 1000
        assert budget.used_bytes <= max(2 * SCRATCH_BYTES, 2 * sent, 4096)
    assert budget.used_bytes <= (1 << 20) + 4
    reader.release()


def test_without_budget_reading_waits_and_goes_on_when_there_is_room(budget):
    reader = FrameReader(budget, FRAME_MAX)
    body = bytes(range(256)) * 40
    stream = framed(body)
    feed(reader, stream[:3000])
    other = budget.limit_bytes - budget.used_bytes
    assert budget.take(other)
    position = 3000
    while (view := reader.writable()) is not None:
        count = min(len(view), len(stream) - position)
        view[:count] = stream[position : position + count]
        reader.received(count)
        position += count
        reader.settle()
    assert position < len(stream)
    assert reader.held_bytes == position
    budget.give_back(other)
    assert feed(reader, stream[position:]) == [body]
    reader.release()
    assert budget.used_bytes == 0


def test_leftovers_of_the_scratch_buffer_are_kept_even_without_budget(budget):
    reader = FrameReader(budget, FRAME_MAX)
    assert budget.take(budget.limit_bytes)
    assert feed(reader, framed(b"12345678")[:7]) == []
    # Another connection uses the scratch buffer meanwhile.
    budget.scratch[:16] = b"\xff" * 16
    view = reader.writable()
    view[:5] = b"45678"
    reader.received(5)
    assert bytes(reader.next_frame()) == b"12345678"


def test_many_leftovers_together_stay_within_reach_of_the_budget():
    """10 000 connections with half a frame each must not hold 10 000 scratch buffers."""
    budget = ReceiveBudget(1 << 20)
    readers = [FrameReader(budget, 1 << 20) for _ in range(500)]
    for reader in readers:
        sent = 0
        while sent < 300_000 and (view := reader.writable()) is not None:
            view[:4] = struct.pack(">i", 1 << 19)
            reader.received(len(view))
            sent += len(view)
            reader.settle()
    assert budget.used_bytes <= (1 << 20) + 500 * 4096
    for reader in readers:
        reader.release()
    assert budget.used_bytes == 0


def test_two_readers_share_the_scratch_buffer_without_mixing(budget):
    one, other = FrameReader(budget, FRAME_MAX), FrameReader(budget, FRAME_MAX)
    first, second = framed(b"first request"), framed(b"second request")
    got = []
    for index in range(max(len(first), len(second))):
        got += feed(one, first[index : index + 1])
        got += feed(other, second[index : index + 1])
    assert sorted(got) == [b"first request", b"second request"]


def test_a_scarce_budget_is_given_back_between_requests():
    budget = ReceiveBudget(10_000)
    reader = FrameReader(budget, FRAME_MAX)
    assert budget.take(5_000)
    feed(reader, framed(b"12345678")[:6])
    assert budget.used_bytes == 9096
    assert feed(reader, framed(b"12345678")[6:]) == [b"12345678"]
    assert budget.used_bytes == 5_000


def test_peek_key_tells_the_key_of_a_complete_frame_only(reader):
    stream = framed(struct.pack(">hhi", 0x0103, 0, 1))
    for count in range(len(stream)):
        view = reader.writable()
        view[:1] = stream[count : count + 1]
        assert reader.peek_key() is None
        assert not reader.has_frame
        reader.received(1)
    assert reader.peek_key() == 0x0103
    assert reader.has_frame


def test_taking_many_queued_frames_one_by_one_moves_few_bytes(budget):
    """A slow predecessor must not make each of 20 000 queued frames cost a copy of the others."""
    reader = FrameReader(budget, FRAME_MAX)
    count = 10_000
    view = reader.writable()
    stream = framed(bytes(8)) * count
    view[: len(stream)] = stream
    reader.received(len(stream))
    reader.settle()
    moved = 0
    for _ in range(count):
        start = reader._start
        assert reader.next_frame() is not None
        before = reader._start
        assert before > start
        reader.settle()
        if reader._start < before:
            moved += reader.held_bytes
    assert reader.held_bytes == 0
    assert moved <= len(stream)


def received(reader, data):
    """Receive all of ``data`` before a frame is asked for."""
    while data:
        view = reader.writable()
        count = min(len(view), len(data))
        view[:count] = data[:count]
        reader.received(count)
        data = data[count:]


@pytest.mark.parametrize("rest", [b"", framed(b"the next one"), framed(b"n" * 300_000)])
def test_a_kept_frame_stays_as_it_was_and_counts_until_it_is_let_go(budget, rest):
    reader = FrameReader(budget, 1 << 20)
    large = bytes(range(256)) * 3000
    received(reader, framed(large) + rest)
    kept, let_go = reader.keep(reader.next_frame())
    assert budget.used_bytes >= len(large)
    again = reader.next_frame()
    assert again is None if not rest else bytes(again) == rest[4:]
    reader.settle()
    assert feed(reader, framed(b"\xff" * 200_000)) == [b"\xff" * 200_000]
    assert bytes(kept) == large
    reader.release()
    assert budget.used_bytes >= len(large)
    let_go()
    let_go()
    assert budget.used_bytes == 0


def test_a_frame_in_the_scratch_buffer_is_copied_when_it_is_kept_and_counts(budget):
    reader = FrameReader(budget, 1 << 20)
    received(reader, framed(b"x" * 40_000) + framed(b"behind it"))
    kept, let_go = reader.keep(reader.next_frame())
    assert budget.used_bytes == 40_000
    assert bytes(reader.next_frame()) == b"behind it"
    budget.scratch[:] = bytes(len(budget.scratch))
    assert bytes(kept) == b"x" * 40_000
    let_go()
    assert budget.used_bytes == 0


def test_what_is_kept_beyond_the_limit_keeps_the_others_from_receiving():
    budget = ReceiveBudget(300_000)
    reader, other = FrameReader(budget, 1 << 20), FrameReader(budget, 1 << 20)
    received(reader, framed(b"x" * 230_000))
    _, let_go = reader.keep(reader.next_frame())
    assert budget.is_scarce
    half = framed(b"y" * 250_000)
    received(other, half[:4096])
    other.settle()
    at = other.held_bytes
    while (view := other.writable()) is not None:
        count = len(view)
        view[:] = half[at : at + count]
        other.received(count)
        at += count
    assert at < 70_000
    let_go()
    assert other.writable() is not None


def test_strangers_leave_the_memory_of_the_others_alone():
    budget = ReceiveBudget(1 << 24)
    strangers = [FrameReader(budget, 1 << 20) for _ in range(100)]
    for reader in strangers:
        reader.confine(8, 1 << 19)
        sent = 0
        while sent < 1 << 19 and (view := reader.writable()) is not None:
            view[:4] = struct.pack(">i", 1 << 19)
            reader.received(len(view))
            sent += len(view)
            reader.settle()
    assert budget.used_bytes == 0
    assert budget.strangers.used_bytes <= (1 << 20) + SCRATCH_BYTES * 2 + 100 * 4096
    other = FrameReader(budget, 1 << 20)
    assert feed(other, framed(bytes(1 << 19))) == [bytes(1 << 19)]
    # One more of them may still say who it is.
    late = FrameReader(budget, 1 << 20)
    late.confine(8, 1 << 19)
    assert feed(late, framed(b"a small one")) == [b"a small one"]
    for reader in strangers:
        reader.release()
    assert budget.strangers.used_bytes == 0


def test_what_was_received_is_counted_with_the_others_from_then_on():
    budget = ReceiveBudget(1 << 24)
    reader = FrameReader(budget, 1 << 20)
    reader.confine(8, 1 << 19)
    assert feed(reader, framed(b"password") + framed(b"x" * 9_000)[:5_000]) == [b"password"]
    taken = budget.strangers.used_bytes
    assert taken >= 5_000
    reader.let_in()
    assert (budget.strangers.used_bytes, budget.used_bytes) == (0, taken)
    assert feed(reader, framed(b"x" * 9_000)[5_000:]) == [b"x" * 9_000]
    reader.release()
    assert budget.used_bytes == 0
