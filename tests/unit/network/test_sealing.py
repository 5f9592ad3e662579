"""What a connection writes over TLS: how it is cut, and how much leaves at a time."""

import asyncio

import pytest

from ottla.network.sealing import BURST_BYTES, PIECE_BYTES, TURN_BYTES, Sealing, Told


class Engine:
    """Marks what it was given: a record is its contents behind one byte."""

    def __init__(self):
        self.sizes = []

    def seal(self, data):
        self.sizes.append(len(data))
        return b"#" + bytes(data)


class Wire:
    """Notes each call; says that it is full once it has ``room`` no more."""

    def __init__(self):
        self.calls = []
        self.room = 1 << 40
        self.sealing = None

    def write(self, data):
        self.writelines([data])

    def writelines(self, pieces):
        self.calls.append([len(piece) - 1 for piece in pieces])
        self.room -= sum(map(len, pieces))
        if self.room <= 0:
            self.sealing.wire_is_full()

    def get_write_buffer_size(self):
        return 0


class Writer:
    """Notes whether it may write."""

    is_paused = False

    def pause_writing(self):
        self.is_paused = True

    def resume_writing(self):
        self.is_paused = False


@pytest.fixture
async def made():
    wire, engine, writer, broken, sent = Wire(), Engine(), Writer(), [], []
    sealing = wire.sealing = Sealing(wire, writer, Told(lambda: sent.append(1), broken.append))
    sealing.open(engine)
    yield sealing, wire, engine, writer
    assert not broken


async def test_a_small_answer_is_one_record_and_one_call(made):
    sealing, wire, engine, writer = made
    sealing.write(bytes(PIECE_BYTES))
    assert wire.calls == [[PIECE_BYTES]]
    assert engine.sizes == [PIECE_BYTES]
    assert not writer.is_paused


async def test_records_of_a_larger_answer_leave_in_one_call(made):
    sealing, wire, _, writer = made
    sealing.write(bytes(PIECE_BYTES + 700))
    sealing.write(bytes(BURST_BYTES))
    assert wire.calls == [[PIECE_BYTES, 700], [PIECE_BYTES] * 4]
    assert not writer.is_paused


async def test_a_turn_has_its_share_and_the_next_goes_on(made):
    sealing, wire, engine, writer = made
    sealing.write(bytes(TURN_BYTES + 5))
    assert sum(engine.sizes) == TURN_BYTES
    assert writer.is_paused
    sealing.write(bytes(7))
    assert sum(engine.sizes) == TURN_BYTES, "it waits behind the other"
    await asyncio.sleep(0)
    assert wire.calls[-1] == [5, 7]
    assert not writer.is_paused


async def test_nothing_is_encrypted_while_the_socket_is_full(made):
    sealing, wire, engine, writer = made
    wire.room = 1
    sealing.write(bytes(TURN_BYTES))
    assert sum(engine.sizes) == BURST_BYTES
    sealing.write(bytes(3))
    await asyncio.sleep(0)
    assert sum(engine.sizes) == BURST_BYTES
    assert sealing.unsent_bytes == TURN_BYTES - BURST_BYTES + 3
    assert writer.is_paused
    wire.room = 1 << 40
    sealing.wire_has_room()
    await asyncio.sleep(0)
    assert sum(engine.sizes) == TURN_BYTES + 3
    assert not writer.is_paused


async def test_a_small_answer_waits_while_the_socket_is_full(made):
    sealing, _, engine, _ = made
    sealing.wire_is_full()
    sealing.write(b"small")
    assert engine.sizes == []
    sealing.wire_has_room()
    assert engine.sizes == [5]


async def test_what_waits_is_sent_after_the_last_word_and_nothing_more(made):
    sealing, _, engine, _ = made
    sealing.wire_is_full()
    sealing.write(b"before")
    sealing.shut()
    sealing.write(b"behind it")
    sealing.wire_has_room()
    assert engine.sizes == [6]
