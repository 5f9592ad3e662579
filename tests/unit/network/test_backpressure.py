"""What one connection may cost: requests in flight, unsent answers, receive memory."""

import struct

import pytest

from ottla.env.memory_disk import MemoryDisk
from ottla.env.rng import SeededRng
from ottla.network.connection import SHARE_BYTES
from ottla.network.outgoing import READ_BYTES_MAX
from ottla.records.region import Region


def region_of(data, path="/records.log"):
    disk = MemoryDisk()
    file = disk.open(path, create=True)
    file.write_at(0, data)
    return file


# Bounds.


async def test_requests_in_flight_are_bounded_in_count(serve, frame, wires, settle):
    served = await serve(in_flight_max=4)
    served.script.held = set(range(10))
    client = await served.connect()
    client.send(*(frame(n, key=wires.PRODUCE) for n in range(10)))
    await settle()
    assert served.script.seen == [0, 1, 2, 3]
    served.script.finish(0)
    await settle()
    assert served.script.seen == [0, 1, 2, 3, 4]
    served.script.finish(1, 2, 3, 4)
    await settle()
    assert client.numbers == [0, 1, 2, 3, 4]
    assert len(served.script.seen) == 9


async def test_requests_in_flight_are_bounded_in_bytes(serve, frame, wires, settle):
    served = await serve(in_flight_bytes_max=2500)
    served.script.held = set(range(6))
    client = await served.connect()
    client.send(*(frame(n, key=wires.PRODUCE, size=1000) for n in range(6)))
    await settle()
    assert served.script.seen == [0, 1, 2]
    served.script.finish(0)
    await settle()
    assert served.script.seen == [0, 1, 2, 3]


async def test_reading_stops_while_requests_queue(serve, frame, settle):
    served = await serve()
    served.script.held = {0}
    client = await served.connect()
    client.send(*(frame(n, size=1000) for n in range(3000)))
    await settle(200)
    assert served.budget.used_bytes < 1024 * 1024, "what is not taken stays with the peer"
    assert client.transport.get_write_buffer_size() > 1024 * 1024
    served.script.finish(0)
    await settle(3000)
    assert client.numbers == list(range(3000))


async def test_garbage_behind_a_waiting_request_is_not_read_for_ever(serve, frame, settle):
    served = await serve()
    served.script.held = {0}
    client = await served.connect()
    client.send(frame(0), b"\xff" * 3_000_000)
    await settle(300)
    assert served.budget.used_bytes < 1024 * 1024
    assert not client.is_lost
    served.script.finish(0)
    await settle()
    assert client.numbers == [0], "the good request before is answered, then the end"
    assert client.is_lost


# A peer that does not read.


async def test_a_peer_that_never_reads_is_stopped_and_then_cut_off(
    serve, frame, wires, until, settle
):
    served = await serve(write_buffer_bytes=100_000)
    client = await served.connect()
    client.transport.pause_reading()
    for number in range(1000):
        served.script.replies[number] = [wires.answer(number, size=10_000)]
    client.send(*(frame(n) for n in range(1000)))
    await settle(200)
    taken = len(served.script.seen)
    assert 10 <= taken <= 30, "64 KiB in the socket and 100 kB in the transport, then no more"
    (connection,) = served.listener._connections
    assert connection._is_read_paused
    served.clock.advance(59)
    await settle()
    assert not client.is_lost
    assert len(served.script.seen) == taken
    served.clock.advance(3)
    await until(lambda: client.is_lost)
    assert isinstance(client.error, ConnectionResetError)
    assert served.listener.connection_count == 0


async def test_a_peer_that_reads_again_gets_everything(serve, frame, wires, until, settle):
    served = await serve(write_buffer_bytes=100_000)
    client = await served.connect()
    client.transport.pause_reading()
    for number in range(200):
        served.script.replies[number] = [wires.answer(number, size=10_000)]
    client.send(*(frame(n) for n in range(200)))
    for _ in range(20):
        served.clock.advance(30)
        await settle()
        client.transport.resume_reading()
        await settle(3)
        client.transport.pause_reading()
        await settle()
    assert not client.is_lost, "slow is not stalled"
    client.transport.resume_reading()
    await until(lambda: len(client.received) == 200 * 10_008)
    assert client.numbers == list(range(200))


async def test_a_stalled_peer_is_cut_off_below_the_high_water_mark_too(
    serve, frame, wires, until, settle
):
    """An answer smaller than the write buffer must not keep a dead connection for ever."""
    served = await serve()
    client = await served.connect()
    client.transport.pause_reading()
    served.script.replies[1] = [wires.answer(1, size=200_000)]
    client.send(frame(1))
    await settle()
    served.clock.advance(63)
    await until(lambda: client.is_lost)
    assert served.listener.connection_count == 0


async def test_many_large_answers_are_not_gathered_in_memory(serve, frame, wires, settle):
    served = await serve()
    client = await served.connect()
    client.transport.pause_reading()
    for number in range(500):
        served.script.replies[number] = [wires.answer(number, size=100_000)]
    client.send(*(frame(n) for n in range(500)))
    await settle(100)
    assert len(served.script.seen) <= 25, "1 MiB of answers, then requests wait"


# Regions.


@pytest.mark.parametrize("size", [1, 1000, READ_BYTES_MAX * 2 + 17])
async def test_regions_and_bytes_leave_in_order(serve, frame, until, size):
    served = await serve(fragments=SeededRng(size))
    data = bytes(range(256)) * (size // 256 + 1)
    file = region_of(b"before" + data)
    first, last = b"head", b"tail"
    length = 4 + len(first) + 2 * size + len(last)
    head = struct.pack(">ii", length, 7)
    served.script.replies[7] = [
        head,
        first,
        Region(file, 6, size),
        Region(file, 6, 0),
        Region(file, 6, size),
        last,
    ]
    client = await served.connect()
    client.send(frame(7), frame(8))
    await until(lambda: len(client.received) == length + 4 + 8)
    body = bytes(client.received[8 : 4 + length])
    assert body == first + data[:size] * 2 + last
    assert client.numbers == [7, 8]


async def test_what_the_kernel_cannot_send_is_read_when_it_is_written(serve, frame, until):
    """A megabyte was read and joined, and its first byte encrypted when it had left the cache."""
    served = await serve()
    size = 10 * READ_BYTES_MAX
    file = region_of(bytes(size))
    served.script.replies[1] = [struct.pack(">ii", size + 4, 1), Region(file, 0, size)]
    client = await served.connect()
    (connection,) = served.listener._connections
    written, write = [], connection._transport.write
    connection._transport.write = lambda data: (written.append(len(data)), write(data))
    client.send(frame(1))
    await until(lambda: len(client.received) == size + 8)
    assert written == [READ_BYTES_MAX] * 10 + [8]


async def test_a_request_behind_a_region_is_served_without_more_bytes(serve, frame, settle):
    """Pipelined fetches: the second must not wait until the peer happens to send something."""
    served = await serve()
    file = region_of(bytes(100_000))
    for number in range(20):
        head = struct.pack(">ii", 100_004, number)
        served.script.replies[number] = [head, Region(file, 0, 100_000)]
    client = await served.connect()
    client.send(*(frame(n) for n in range(20)))
    await settle(400)
    assert client.numbers == list(range(20))


async def test_a_region_does_not_fill_memory_when_the_peer_is_slow(serve, frame, until, settle):
    served = await serve()
    size = 20_000_000
    file = region_of(bytes(size))
    served.script.replies[1] = [struct.pack(">ii", size + 4, 1), Region(file, 0, size)]
    client = await served.connect()
    client.transport.pause_reading()
    client.send(frame(1))
    await settle()
    (connection,) = served.listener._connections
    assert connection._transport.get_write_buffer_size() < 2 * 1024 * 1024
    client.transport.resume_reading()
    await until(lambda: len(client.received) == size + 8)


async def test_a_file_shorter_than_promised_ends_the_connection(serve, frame, until, caplog):
    served = await serve()
    file = region_of(bytes(100))
    served.script.replies[1] = [struct.pack(">ii", 1004, 1), Region(file, 0, 1000)]
    client = await served.connect()
    client.send(frame(1))
    await until(lambda: client.is_lost)
    assert "promised" in caplog.text


async def test_a_file_that_cannot_be_read_ends_the_connection(serve, frame, until, caplog):
    served = await serve()
    file = region_of(bytes(100))
    file.close()
    served.script.replies[1] = [struct.pack(">ii", 104, 1), Region(file, 0, 100)]
    client = await served.connect()
    client.send(frame(1))
    await until(lambda: client.is_lost)
    assert "cannot be read" in caplog.text


# Memory between requests.


async def test_a_connection_at_rest_holds_no_receive_memory(serve, frame, settle):
    served = await serve()
    client = await served.connect()
    big = frame(1, size=600_000)
    client.send(big[:-1])
    await settle()
    assert served.budget.used_bytes >= 600_000
    client.send(big[-1:])
    await settle()
    assert client.numbers == [1]
    served.clock.advance(7)
    assert served.budget.used_bytes == 0
    client.send(frame(2))
    await settle()
    assert client.numbers == [1, 2]


async def test_with_the_receive_budget_used_up_reading_pauses_and_resumes(serve, frame, settle):
    served = await serve(queued_bytes_max=1_000_000)
    greedy, modest, small = [await served.connect() for _ in range(3)]
    greedy.send(frame(1, size=900_000)[:600_000])
    await settle()
    modest.send(frame(2, size=300_000))
    modest.send(frame(3))
    await settle(200)
    assert modest.numbers == []
    assert 500_000 < served.budget.used_bytes <= 1_000_000
    small.send(frame(4, size=3000))
    await settle()
    assert small.numbers == [4], "who needs no memory of its own is served"
    greedy.transport.abort()
    await settle()
    served.clock.advance(1.1)
    await settle()
    assert modest.numbers == [2, 3]


async def test_requests_in_part_that_use_up_the_budget_do_not_wait_for_each_other_for_ever(
    serve, frame, settle, until
):
    """Nobody reads, so nobody is slow: no time limit ended that, and the memory was never free."""
    served = await serve(queued_bytes_max=4_000_000)
    clients = [await served.connect() for _ in range(6)]

    def is_answered():
        return any(client.numbers for client in clients)

    def is_at_rest():
        """Whether all that can arrive has arrived, however many turns that takes the kernel."""
        connections = served.listener._connections
        return is_answered() or all(one._is_read_paused for one in connections)

    for number, client in enumerate(clients):
        client.send(frame(number, size=1_500_000))
    await until(lambda: served.listener.connection_count == 6 and is_at_rest())
    assert not is_answered()
    for _ in range(400):  # Who got some room and is starved again has its time again.
        served.clock.advance(1.0)
        await settle()  # Who was cut off gives its memory back.
        await until(is_at_rest)
        if is_answered():
            break
    assert is_answered()
    assert served.listener.connection_count < len(clients), "who held most made room"
    assert served.budget.used_bytes <= 4_000_000


async def test_a_connection_that_waited_for_receive_memory_is_not_slow_afterwards(
    serve, frame, settle, until
):
    """The wait counted as the peer's: whoever had got room was cut off a moment later."""
    served = await serve(queued_bytes_max=4_000_000)
    clients = {}
    for number in range(6):
        client = await served.connect()
        clients[client.transport.get_extra_info("sockname")[1]] = client
        client.send(frame(number, size=1_500_000)[:1_450_000])
    connections = served.listener._connections
    await until(lambda: len(connections) == 6 and all(one._is_read_paused for one in connections))
    for _ in range(400):
        served.clock.advance(1.0)
        await settle()
        if not all(one._is_read_paused for one in connections):
            break
    (lucky,) = [one for one in connections if not one._is_read_paused]
    await until(lambda: lucky._reader.held_bytes >= 1_400_000)
    for _ in range(int(served.limits.frame_seconds) - 2):
        served.clock.advance(1.0)
        await settle()
    assert lucky in served.listener._connections
    client = clients[lucky.peer.port]
    number = list(clients.values()).index(client)
    client.send(frame(number, size=1_500_000)[1_450_000:])
    await until(lambda: client.numbers == [number])


async def test_a_peer_that_always_has_more_lets_the_others_read(serve, wires, until):
    """libuv reads a socket that is always full up to 32 times before it looks at another."""
    served = await serve()
    client = await served.connect()
    (connection,) = served.listener._connections
    transport = connection._transport
    view = connection.get_buffer(-1)
    received = 0
    while not connection._is_read_paused:
        piece = wires.frame(received, size=200_000)[: len(view)]
        view[: len(piece)] = piece
        connection.buffer_updated(len(piece))
        received += len(piece)
        view = connection.get_buffer(-1)
        assert received <= SHARE_BYTES + 300_000
    assert not transport.is_reading()
    await until(lambda: not connection._is_read_paused)
    assert transport.is_reading()
    client.transport.abort()
