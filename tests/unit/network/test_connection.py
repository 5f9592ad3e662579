"""Order, overlap, faults and ends of one connection, over a net in memory."""

import logging

import pytest

from ottla.env.rng import SeededRng
from ottla.errors import CloseConnection, MalformedMessage
from ottla.pending import Pending

# Frames in, answers in order.


async def test_a_frame_split_at_every_byte_is_answered_once(serve, frame, settle):
    served = await serve()
    stream = frame(1, size=3) + frame(2)
    for at in range(1, len(stream)):
        client = await served.connect()
        client.send(stream[:at])
        await settle()
        client.send(stream[at:])
        await settle()
        assert client.numbers == [1, 2]
        client.transport.close()
    await settle()
    assert served.listener.connection_count == 0


@pytest.mark.parametrize("seed", range(4))
async def test_pipelined_frames_in_random_fragments(serve, frame, until, seed):
    served = await serve(fragments=SeededRng(seed))
    client = await served.connect()
    count = 200
    client.send(*(frame(n, size=n * 7 % 900) for n in range(count)))
    await until(lambda: len(served.script.seen) == count)
    await until(lambda: len(client.received) == 8 * count)
    assert client.numbers == list(range(count))


async def test_the_next_request_waits_for_the_answer_of_the_last(serve, frame, settle):
    served = await serve()
    served.script.held = {1}
    client = await served.connect()
    client.send(frame(1), frame(2), frame(3))
    await settle()
    assert served.script.seen == [1]
    served.script.finish(1)
    await settle()
    assert served.script.seen == [1, 2, 3]
    assert client.numbers == [1, 2, 3]


async def test_consecutive_produces_overlap_and_are_answered_in_order(serve, frame, wires, settle):
    served = await serve()
    served.script.held = {1, 2, 3}
    client = await served.connect()
    client.send(*(frame(n, key=wires.PRODUCE) for n in (1, 2, 3)), frame(4), frame(5))
    await settle()
    assert served.script.seen == [1, 2, 3], "a fetch does not overtake a produce"
    served.script.finish(3)
    await settle()
    served.script.finish(2)
    await settle()
    assert client.numbers == []
    served.script.finish(1)
    await settle()
    assert client.numbers == [1, 2, 3, 4, 5]


async def test_a_produce_does_not_overlap_a_waiting_fetch(serve, frame, wires, settle):
    served = await serve()
    served.script.held = {1}
    client = await served.connect()
    client.send(frame(1), frame(2, key=wires.PRODUCE))
    await settle()
    assert served.script.seen == [1]


async def test_a_produce_whose_append_is_not_done_is_not_overtaken(serve, frame, wires, settle):
    served = await serve()
    client = await served.connect()
    pending = Pending(overlaps=False)
    served.script.replies[1] = pending
    client.send(frame(1, key=wires.PRODUCE), frame(2, key=wires.PRODUCE))
    await settle()
    assert served.script.seen == [1]
    pending.resolve([wires.answer(1)])
    await settle()
    assert client.numbers == [1, 2]


async def test_an_answer_at_once_waits_behind_its_predecessors(serve, frame, wires, settle):
    served = await serve()
    served.script.held = {1}
    client = await served.connect()
    client.send(*(frame(n, key=wires.PRODUCE) for n in (1, 2, 3)))
    await settle()
    assert served.script.seen == [1, 2, 3]
    assert client.numbers == []
    served.script.finish(1)
    await settle()
    assert client.numbers == [1, 2, 3]


async def test_a_request_without_answer_leaves_no_gap(serve, frame, wires, settle):
    served = await serve()
    served.script.held = {1}
    served.script.replies[2] = None
    later = served.script.replies[3] = Pending(overlaps=True)
    client = await served.connect()
    client.send(*(frame(n, key=wires.PRODUCE) for n in (1, 2, 3, 4)))
    await settle()
    served.script.finish(1)
    await settle()
    later.resolve(None)
    await settle()
    assert client.numbers == [1, 4]


async def test_an_answer_that_is_there_already_keeps_the_order(serve, frame, wires, settle):
    served = await serve()
    done = Pending()
    done.resolve([wires.answer(1)])
    served.script.replies[1] = done
    client = await served.connect()
    client.send(frame(1), frame(2))
    await settle()
    assert client.numbers == [1, 2]


# Faults end their own connection only, behind the answers of the requests before.


@pytest.mark.parametrize(
    "bad",
    [b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00"],
)
async def test_a_malformed_frame_closes_its_connection_only(serve, frame, until, settle, bad):
    served = await serve(request_bytes_max=100_000)
    good, hostile = await served.connect(), await served.connect()
    hostile.send(frame(1), bad, frame(2))
    await until(lambda: hostile.is_lost)
    assert hostile.numbers == [1]
    assert hostile.error is None, "closed, not reset"
    good.send(frame(3))
    await settle()
    assert good.numbers == [3]


@pytest.mark.parametrize(
    "error", [MalformedMessage("nonsense"), CloseConnection("acks=0"), RuntimeError("our fault")]
)
async def test_an_exception_closes_its_connection_only(
    serve, frame, wires, until, settle, error, caplog
):
    served = await serve()
    served.script.replies[3] = error
    served.script.held = {1}
    good, hostile = await served.connect(), await served.connect()
    hostile.send(*(frame(n, key=wires.PRODUCE) for n in (1, 2, 3, 4)))
    await settle()
    assert served.script.seen == [1, 2, 3]
    assert not hostile.is_lost, "the answers of earlier requests are owed"
    served.script.finish(1)
    await until(lambda: hostile.is_lost)
    assert hostile.numbers == [1, 2]
    assert served.script.seen == [1, 2, 3]
    good.send(frame(5))
    await settle()
    assert good.numbers == [5]
    logged = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert len(logged) == isinstance(error, RuntimeError)


@pytest.mark.parametrize("error", [CloseConnection("acks=0"), RuntimeError("our fault")])
async def test_an_answer_that_fails_later_closes_behind_its_predecessors(
    serve, frame, wires, until, settle, error
):
    served = await serve()
    served.script.held = {1, 2, 3}
    client = await served.connect()
    client.send(*(frame(n, key=wires.PRODUCE) for n in (1, 2, 3)))
    await settle()
    served.script.pending[2].fail(error)
    served.script.finish(3)
    await settle()
    assert not client.is_lost
    served.script.finish(1)
    await until(lambda: client.is_lost)
    assert client.numbers == [1]


async def test_a_failure_while_a_later_request_is_dispatched_lets_no_answer_overtake(
    serve, frame, wires, until
):
    served = await serve()
    served.script.held = {1}

    def fail_the_first(number):
        if number == 2:
            served.script.pending[1].fail(RuntimeError("failed meanwhile"))

    served.script.hook = fail_the_first
    client = await served.connect()
    client.send(frame(1, key=wires.PRODUCE), frame(2, key=wires.PRODUCE))
    await until(lambda: client.is_lost)
    assert client.numbers == []


@pytest.mark.parametrize("error", [CloseConnection("acks=0"), RuntimeError("our fault")])
@pytest.mark.parametrize("overlapping", [0, 1])
async def test_no_request_behind_one_that_fails_later_is_served(
    serve, frame, wires, until, settle, error, overlapping
):
    """Its answer would come in the place of the one that is owed."""
    served = await serve()
    served.script.held = {1, 2}
    client = await served.connect()
    client.send(frame(1, key=wires.PRODUCE), *[frame(2, key=wires.PRODUCE)] * overlapping)
    client.send(frame(3), frame(4))
    await settle()
    served.script.pending[1].fail(error)
    await until(lambda: client.is_lost)
    assert client.numbers == []
    assert served.script.seen == [1, 2][: 1 + overlapping]


# The ends of a connection.


async def test_a_half_closed_peer_gets_the_answer_it_is_owed(serve, frame, until, settle):
    served = await serve()
    served.script.held = {1}
    client = await served.connect()
    client.send(frame(1))
    client.transport.write_eof()
    await settle()
    assert not client.is_lost
    served.script.finish(1)
    await until(lambda: client.is_lost)
    assert client.numbers == [1]


async def test_requests_sent_before_a_half_close_are_all_answered(serve, frame, until, settle):
    served = await serve()
    served.script.held = {1, 2}
    client = await served.connect()
    client.send(frame(1), frame(2), frame(3))
    client.transport.write_eof()
    await settle()
    served.script.finish(1)
    await settle()
    served.script.finish(2)
    await until(lambda: client.is_lost)
    assert client.numbers == [1, 2, 3]


async def test_a_half_close_in_the_middle_of_a_frame_closes(serve, frame, until):
    served = await serve()
    client = await served.connect()
    client.send(frame(1), frame(2)[:-1])
    client.transport.write_eof()
    await until(lambda: client.is_lost)
    assert client.numbers == [1]
    assert served.script.seen == [1]


async def test_an_answer_that_comes_after_the_connection_is_gone_goes_nowhere(
    serve, frame, wires, until, settle
):
    served = await serve()
    served.script.held = {1, 2, 3}
    client = await served.connect()
    client.send(*(frame(n, key=wires.PRODUCE) for n in (1, 2, 3)))
    await settle()
    client.transport.abort()
    await until(lambda: served.listener.connection_count == 0)
    served.script.finish(2, 1)
    served.script.pending[3].fail(RuntimeError("too late"))
    await settle()


async def test_a_connection_lost_in_the_turn_its_answer_comes(serve, frame, until, settle):
    served = await serve()
    served.script.held = {1}
    client = await served.connect()
    client.send(frame(1))
    await settle()
    (connection,) = served.listener._connections
    served.script.finish(1)
    connection.abort()
    await until(lambda: client.is_lost)
    await settle()


# Re-entrancy and group commits.


async def test_answers_resolved_inside_another_dispatch_keep_their_order(
    serve, frame, wires, settle
):
    served = await serve()
    served.script.held = {1, 2}

    def hook(number):
        if number == 3:
            served.script.finish(2, 1)

    served.script.hook = hook
    client = await served.connect()
    client.send(*(frame(n, key=wires.PRODUCE) for n in (1, 2, 3)), frame(4))
    await settle()
    assert client.numbers == [1, 2, 3, 4]


async def test_connections_that_answer_each_other_do_not_recurse(serve, frame, settle):
    """Each connection's second request answers the first of the next: a chain of 300 wake-ups."""
    served = await serve()
    count = 300
    served.script.held = set(range(count))

    def wake_the_next(number):
        if count <= number < 2 * count - 1:
            served.script.finish(number - count + 1)

    served.script.hook = wake_the_next
    clients = [await served.connect() for _ in range(count)]
    for number, client in enumerate(clients):
        client.send(frame(number), frame(number + count))
    await settle()
    served.script.finish(0)
    await settle(3 * count)
    assert [c.numbers for c in clients] == [[n, n + count] for n in range(count)]


async def test_the_answers_of_one_group_commit_leave_in_one_write(
    serve, frame, wires, settle, monkeypatch
):
    served = await serve()
    count = 64
    served.script.held = set(range(count))
    client = await served.connect()
    client.send(*(frame(n, key=wires.PRODUCE) for n in range(count)))
    await settle()
    (connection,) = served.listener._connections
    writes = []
    transport = connection._transport
    real_write = transport.write
    monkeypatch.setattr(transport, "write", lambda data: (writes.append(data), real_write(data)))
    served.script.finish(*range(count))
    await settle()
    assert len(writes) == 1
    assert client.numbers == list(range(count))
