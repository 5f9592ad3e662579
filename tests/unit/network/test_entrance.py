"""A client that has to be let in: narrow bounds until then, the usual ones afterwards."""

import struct

import pytest

from ottla.errors import CloseConnection
from ottla.pending import Pending


@pytest.fixture
async def guarded(serve):
    """``serve``, with clients that are confined; ``guarded.entrances``, in their order."""
    served = await serve(request_bytes_max=10_000)
    served.entrances = []
    usual = served.script.open

    def confine(peer, entrance):
        served.entrances.append(entrance)
        entrance.confine(frame_bytes_min=8, frame_bytes_max=100, seconds=10)
        return usual(peer, entrance)

    served.listener._open_dispatch = confine
    served.listener._listening[0]._factory = lambda: served.listener._accept(confine)
    return served


async def test_who_is_not_let_in_in_time_is_cut_off_however_busy(guarded, frame, wires, until):
    client = await guarded.connect()
    for number in range(9):
        client.send(frame(number))
        await until(lambda: len(client.numbers) == number + 1)  # noqa: B023
        guarded.clock.advance(1)
    assert not client.is_lost
    client.send(struct.pack(">i", 50))  # And in the middle of a frame, too.
    guarded.clock.advance(2)
    await until(lambda: client.is_lost)


async def test_who_is_let_in_has_all_time(guarded, frame, until, settle):
    client = await guarded.connect()
    client.send(frame(1))
    await until(lambda: client.numbers == [1])
    (entrance,) = guarded.entrances
    entrance.let_in(guarded.script.dispatch)
    for _ in range(20):
        guarded.clock.advance(1)
    await settle()
    assert not client.is_lost


async def test_a_large_frame_is_taken_from_who_is_let_in_only(guarded, frame, until):
    stranger, known = await guarded.connect(), await guarded.connect()
    await until(lambda: len(guarded.entrances) == 2)
    guarded.entrances[1].let_in(guarded.script.dispatch)
    for client in (stranger, known):
        client.send(frame(1, size=5_000))
    await until(lambda: stranger.is_lost)
    await until(lambda: known.numbers == [1])
    assert guarded.script.seen == [1]


async def test_the_frame_behind_the_one_that_let_in_is_served_by_the_next_dispatch(
    guarded, frame, until, wires
):
    served = []

    def let_in(number):
        if number == 1:
            guarded.entrances[0].let_in(
                lambda view: served.append(wires.number_of(view)) or [wires.answer(9)]
            )

    guarded.script.hook = let_in
    client = await guarded.connect()
    client.send(frame(1), frame(2), frame(3, size=5_000))
    await until(lambda: client.numbers == [1, 9, 9])
    assert served == [2, 3]
    assert guarded.script.seen == [1]


async def test_a_last_answer_leaves_before_the_connection_closes(guarded, frame, until, wires):
    refused = Pending()
    guarded.script.replies[1] = refused
    client = await guarded.connect()
    client.send(frame(1), frame(2))
    await until(lambda: guarded.script.seen == [1])
    refused.fail(CloseConnection("wrong", tuple(map(bytes, [wires.answer(1)]))))
    await until(lambda: client.is_lost)
    assert client.numbers == [1]
    assert guarded.script.seen == [1], "what came behind is not looked at"


async def test_many_who_are_not_let_in_leave_nothing_behind(guarded, frame, until):
    clients = [await guarded.connect() for _ in range(50)]
    for client in clients:
        client.send(frame(1)[:7])
    await until(lambda: len(guarded.entrances) == 50)
    for _ in range(12):  # At once would be a process that stood still.
        guarded.clock.advance(1)
    await until(lambda: all(client.is_lost for client in clients))
    await until(lambda: guarded.listener.connection_count == 0)
    assert guarded.budget.used_bytes == 0
