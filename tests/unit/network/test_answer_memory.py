"""The memory of all unread answers: its limit, and who is disconnected when it is used up."""

import struct

import pytest

from ottla.answer_memory import SMALL_BYTES, AnswerMemory
from ottla.env.memory_disk import MemoryDisk
from ottla.network.patience import SCARCE_SECONDS
from ottla.records.region import Region

MIB = 1 << 20


class Holder:
    unread_bytes = 0

    def __init__(self, unread_bytes=0):
        self.unread_bytes = unread_bytes


# The count.


def test_what_is_small_is_not_counted():
    memory = AnswerMemory(MIB)
    assert not memory.note(Holder(SMALL_BYTES))
    assert memory.used_bytes == 0
    assert memory.note(Holder(SMALL_BYTES + 1))
    assert memory.used_bytes == SMALL_BYTES + 1


def test_an_answer_counts_until_its_last_bytes_have_left():
    memory, holder = AnswerMemory(MIB), Holder(MIB)
    memory.note(holder)
    holder.unread_bytes = MIB // 2
    memory.note(holder)
    assert (memory.used_bytes, memory.held_by(holder)) == (MIB, MIB), "its other half is there, too"
    holder.unread_bytes = SMALL_BYTES
    assert not memory.note(holder)
    assert memory.used_bytes == 0


def test_those_who_wait_for_room_are_told_when_there_is_some():
    memory, told = AnswerMemory(MIB), []
    memory.on_room(lambda: told.append(memory.used_bytes))
    first, second = Holder(MIB), Holder(MIB)
    memory.note(first)
    memory.note(second)
    assert memory.is_full
    memory.forget(first)
    assert memory.is_full
    assert not told, "there is no room yet"
    memory.forget(second)
    assert not memory.is_full
    assert told == [0]
    memory.forget(second)
    assert told == [0]


def test_what_has_left_unnoticed_is_found_by_a_recount():
    memory, holders = AnswerMemory(MIB), [Holder(MIB // 4) for _ in range(4)]
    for holder in holders:
        memory.note(holder)
        holder.unread_bytes = 0
    assert memory.is_full
    memory.recount()
    assert (memory.is_full, memory.used_bytes) == (False, 0)


# Connections.


async def deaf_clients(served, frame, wires, settle, count, size):
    """Connect clients that ask for an answer of ``size`` bytes and take nothing of it."""
    clients = []
    for number in range(count):
        client = await served.connect()
        client.transport.pause_reading()
        served.script.replies[number] = [wires.answer(number, size=size)]
        client.send(frame(number))
        clients.append(client)
        await settle(5)
    return clients


async def sweep(served, settle, seconds):
    for _ in range(round(seconds)):
        served.clock.advance(1)
        await settle(10)


async def test_unread_answers_of_all_connections_have_one_bound(serve, frame, wires, settle):
    served = await serve(answer_bytes_max=10 * MIB, write_stall_seconds=3600)
    deaf = await deaf_clients(served, frame, wires, settle, 20, MIB)
    assert served.answers.is_full
    assert served.answers.used_bytes > 18 * MIB, "what was made is there, and counted"
    await sweep(served, settle, SCARCE_SECONDS - 1)
    assert not any(client.is_lost for client in deaf)
    await sweep(served, settle, 3)
    lost = [client.is_lost for client in deaf]
    assert 12 <= sum(lost) <= 14, "as many as it takes, and no more"
    assert all(lost[: sum(lost)]), "those who have waited the longest"
    assert served.answers.used_bytes < 10 * MIB


async def test_a_client_that_reads_is_served_while_others_use_up_the_memory(
    serve, frame, wires, until, settle
):
    served = await serve(answer_bytes_max=4 * MIB)
    await deaf_clients(served, frame, wires, settle, 6, MIB)
    assert served.answers.is_full
    honest = await served.connect()
    large = [wires.answer(100, size=3 * MIB)]
    served.script.replies[100] = large
    honest.send(*(frame(n) for n in range(100, 110)))
    await until(lambda: len(honest.received) == 3 * MIB + 8 + 9 * 8)
    assert honest.numbers == list(range(100, 110))


async def test_a_client_that_has_not_read_its_answer_is_not_served_while_memory_is_full(
    serve, frame, wires, settle
):
    served = await serve(answer_bytes_max=4 * MIB)
    await deaf_clients(served, frame, wires, settle, 4, MIB + 100_000)
    assert served.answers.is_full
    late = await served.connect()
    late.transport.pause_reading()
    for number in range(100, 200):
        served.script.replies[number] = [wires.answer(number, size=50_000)]
        late.send(frame(number))
        await settle(3)
    seen = [number for number in served.script.seen if number >= 100]
    assert len(seen) <= 4, "64 KiB in the socket, and an answer that does not fit there"
    assert not late.is_lost


async def test_a_client_that_reads_its_answer_slowly_is_not_cut_off(serve, frame, wires, settle):
    served = await serve(
        answer_bytes_max=12 * MIB, bytes_per_second_min=10_000, write_stall_seconds=3600
    )
    slow, *deaf = await deaf_clients(served, frame, wires, settle, 4, 4 * MIB)
    for _ in range(14):
        assert len(slow.received) < 4 * MIB
        served.clock.advance(1)
        before = len(slow.received)
        slow.transport.resume_reading()
        for _ in range(100):
            await settle(1)
            if len(slow.received) - before > 15_000:
                break
        slow.transport.pause_reading()
    assert not slow.is_lost
    assert any(client.is_lost for client in deaf)


async def test_small_answers_that_gather_are_counted(serve, frame, wires, settle):
    served = await serve()
    client = await served.connect()
    client.transport.pause_reading()
    for number in range(50):
        served.script.replies[number] = [wires.answer(number, size=10_000)]
        client.send(frame(number))
        await settle(3)
    await sweep(served, settle, 2)
    assert 400_000 < served.answers.used_bytes <= 500_000 + 50 * 8


async def test_stretches_of_files_are_no_memory(serve, frame, settle):
    served = await serve(answer_bytes_max=MIB)
    disk = MemoryDisk()
    file = disk.open("/records.log", create=True)
    file.write_at(0, bytes(8 * MIB))
    client = await served.connect()
    client.transport.pause_reading()
    for number in range(3):
        head = struct.pack(">ii", 8 * MIB + 4, number)
        served.script.replies[number] = [head, Region(file, 0, 8 * MIB)]
    client.send(*(frame(n) for n in range(3)))
    await settle(50)
    (connection,) = served.listener._connections
    assert connection._outgoing.unsent_bytes > 6 * MIB
    assert served.answers.used_bytes < 2 * MIB, "what is read of it at a time"


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_a_connection_that_ends_gives_everything_back(
    serve, frame, wires, until, settle, how
):
    served = await serve(answer_bytes_max=MIB)
    (client,) = await deaf_clients(served, frame, wires, settle, 1, 2 * MIB)
    assert served.answers.is_full
    getattr(client.transport, how)()
    await until(lambda: not served.listener.connection_count)
    assert (served.answers.is_full, served.answers.used_bytes) == (False, 0)
