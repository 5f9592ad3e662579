"""No client waits for long because another one asks for much."""

import asyncio

import pytest

from ottla.answer_memory import AnswerMemory
from ottla.env.clock import SystemClock
from ottla.network.outgoing import TURN_BYTES, Outgoing
from ottla.records.region import Region
from ottla.turns import SLICE_SECONDS, TURN_SECONDS


async def test_pipelined_requests_do_not_keep_another_client_waiting(serve, frame, settle):
    served = await serve()
    served.script.hook = lambda _: served.clock.hold(0.003)
    greedy, other = await served.connect(), await served.connect()
    greedy.send(*(frame(n) for n in range(400)))
    other.send(frame(1000))
    await settle(5000)
    before = served.script.seen.index(1000)
    assert before * 0.003 <= 3 * SLICE_SECONDS, f"served behind {before} of another's"
    assert greedy.numbers == list(range(400)), "in order, and all of them"
    assert other.numbers == [1000]


async def test_a_request_that_takes_long_is_followed_by_another_clients(serve, frame, settle):
    served = await serve()
    served.script.hook = lambda number: served.clock.hold(0.5 if number < 100 else 0)
    greedy, other = await served.connect(), await served.connect()
    greedy.send(*(frame(n) for n in range(10)))
    other.send(*(frame(n) for n in range(1000, 1003)))
    await settle(2000)
    assert served.script.seen.index(1000) <= 2
    assert len(served.script.seen) == 13


async def test_many_busy_connections_do_not_make_one_long_turn(serve, frame, settle):
    served = await serve()
    turns_of = []  # Which turn of the loop each request was served in.
    turn = 0
    loop = asyncio.get_running_loop()

    def count():
        nonlocal turn
        turn += 1
        loop.call_soon(count)

    loop.call_soon(count)

    def hook(_):
        served.clock.hold(0.004)
        turns_of.append(turn)

    served.script.hook = hook
    clients = [await served.connect() for _ in range(50)]
    for client in clients:
        client.send(*(frame(n) for n in range(5)))
    await settle(5000)
    assert len(turns_of) == 250
    longest = max(turns_of.count(number) for number in set(turns_of))
    assert longest * 0.004 <= TURN_SECONDS + 2 * SLICE_SECONDS
    assert all(client.numbers == list(range(5)) for client in clients)


async def test_a_usual_request_is_answered_in_the_turn_it_arrives(serve, frame, settle):
    served = await serve()
    client = await served.connect()
    client.send(frame(1), frame(2))
    await settle(6)
    assert client.numbers == [1, 2]


async def test_requests_before_a_half_close_are_all_answered(serve, frame, settle):
    served = await serve()
    served.script.hook = lambda _: served.clock.hold(0.01)
    client = await served.connect()
    client.send(*(frame(n) for n in range(50)))
    client.transport.write_eof()
    await settle(3000)
    assert client.numbers == list(range(50))


class Sender:
    """A kernel with room for everything."""

    def __init__(self):
        self.sent = []

    def send_file(self, file, position, length_bytes):
        self.sent.append((position, length_bytes))
        return length_bytes


class Transport:
    def __init__(self):
        self.written = bytearray()

    def set_write_buffer_limits(self, high):
        pass

    def get_write_buffer_size(self):
        return 0

    def is_closing(self):
        return False

    def write(self, data):
        self.written += data


def test_a_large_answer_leaves_in_shares(tmp_path):
    from ottla.env.real_disk import RealDisk

    file = RealDisk().open(str(tmp_path / "log"), create=True)
    sender, transport = Sender(), Transport()
    memory = AnswerMemory(1 << 28)
    outgoing = Outgoing(transport, sender, memory=memory, buffer_bytes=1 << 20)
    size = 4 * TURN_BYTES
    outgoing.put([b"head", Region(file, 0, size), b"tail"])
    rounds = 1
    while outgoing.send():
        assert sum(length for _, length in sender.sent) <= rounds * TURN_BYTES
        rounds += 1
        assert rounds < 20
    assert rounds >= 4
    assert bytes(transport.written) == b"headtail"
    assert outgoing.size_bytes == 0
    assert sender.sent[0] == (0, TURN_BYTES)
    assert sum(length for _, length in sender.sent) == size
    file.close()


@pytest.mark.timeout(60)
async def test_a_large_answer_is_whole_on_real_sockets(serve, frame, until, tmp_path):
    from ottla.env.real_disk import RealDisk
    from ottla.env.real_net import AsyncioNet

    served = await serve(net=AsyncioNet(), clock=SystemClock())
    data = bytes(range(256)) * 4 * 8192  # 8 MiB
    file = RealDisk().open(str(tmp_path / "log"), create=True)
    file.write_at(0, data)
    head = (4 + len(data)).to_bytes(4, "big") + (7).to_bytes(4, "big")
    served.script.replies = {7: [head, Region(file, 0, len(data))]}
    client = await served.connect()
    client.send(frame(7), frame(8))
    await asyncio.wait_for(until(lambda: len(client.received) >= 8 + len(data) + 8, 10**9), 30)
    assert client.numbers == [7, 8]
    assert bytes(client.received[8 : 8 + len(data)]) == data
    file.close()


async def test_what_waits_for_a_lost_connection_ends_with_it(serve, frame, until, settle):
    served = await serve()
    served.script.held = {1}
    client = await served.connect()
    client.send(frame(1))
    await until(lambda: served.script.pending)
    ended = []
    served.script.pending[1].on_cancel(lambda: ended.append(1))
    client.transport.abort()
    await settle()
    assert ended == [1]


async def test_a_peer_that_closes_is_answered_with_what_there_is(serve, frame, until, settle):
    served = await serve()
    served.script.held = {1}
    client = await served.connect()
    client.send(frame(1))
    await until(lambda: served.script.pending)
    pending = served.script.pending[1]
    pending.on_cancel(lambda: None, lambda: served.script.finish(1))
    client.transport.write_eof()
    await settle()
    assert client.numbers == [1]
    assert client.is_lost


async def test_a_connection_cut_off_here_ends_what_waits_for_it(serve, frame, until, settle):
    served = await serve()
    served.script.held = {1}
    client = await served.connect()
    client.send(frame(1))
    await until(lambda: served.script.pending)
    ended = []
    served.script.pending[1].on_cancel(lambda: ended.append(1))
    for connection in list(served.listener._connections):
        connection.abort()
    await settle()
    assert ended == [1]
