"""A muted connection: what was asked is answered, what comes after waits until the time is over."""

import pytest


@pytest.fixture
async def muted(serve):
    """``serve`` with clients whose request 1 mutes its connection for 5 s."""
    served = await serve(idle_seconds=20.0)
    served.entrances = []
    usual = served.script.open

    def keep(peer, entrance):
        served.entrances.append(entrance)
        return usual(peer, entrance)

    served.listener._listening[0]._factory = lambda: served.listener._accept(keep)
    served.script.hook = lambda number: number == 1 and served.entrances[0].mute(5.0)
    return served


async def test_later_frames_wait_and_the_answer_does_not(muted, frame, until, settle):
    client, other = await muted.connect(), await muted.connect()
    client.send(frame(1), frame(2))
    await until(lambda: client.numbers == [1])
    client.send(frame(3))
    other.send(frame(7))
    await until(lambda: other.numbers == [7])
    muted.clock.advance(2.5)
    muted.clock.advance(2.4)
    await settle()
    assert client.numbers == [1]
    muted.clock.advance(0.2)
    await until(lambda: client.numbers == [1, 2, 3])


async def test_the_longer_mute_counts(muted, frame, until, settle):
    client = await muted.connect()
    client.send(frame(1), frame(2))
    await until(lambda: client.numbers == [1])
    (entrance,) = muted.entrances
    entrance.mute(1.0)
    muted.clock.advance(2.0)
    await settle()
    assert client.numbers == [1]
    entrance.mute(9.0)
    muted.clock.advance(8.0)
    await settle()
    assert client.numbers == [1]
    muted.clock.advance(1.5)
    await until(lambda: client.numbers == [1, 2])


async def test_a_request_that_waits_is_answered_although_its_connection_is_muted(
    muted, frame, until, settle
):
    client = await muted.connect()
    muted.script.held.add(1)
    client.send(frame(1), frame(2))
    await until(lambda: muted.script.seen == [1])
    muted.script.finish(1)
    await until(lambda: client.numbers == [1])
    muted.clock.advance(4.0)
    await settle()
    assert client.numbers == [1]
    muted.clock.advance(1.5)
    await until(lambda: client.numbers == [1, 2])


async def test_a_client_that_is_gone_takes_a_connection_no_longer_than_an_idle_one(
    muted, frame, until, settle
):
    """While it is muted nobody reads from it, so nobody hears that it has gone."""
    client = await muted.connect()
    client.send(frame(1))
    await until(lambda: client.numbers == [1])
    muted.entrances[0].mute(1000.0)
    for _ in range(19):
        muted.clock.advance(1.0)
    await settle()
    assert muted.listener.connection_count == 1
    for _ in range(3):
        muted.clock.advance(1.0)
    await until(lambda: muted.listener.connection_count == 0)


async def test_a_muted_connection_that_is_lost_leaves_nothing(muted, frame, until, settle):
    client = await muted.connect()
    client.send(frame(1))
    await until(lambda: client.numbers == [1])
    client.transport.abort()
    muted.listener.cut_off()
    await until(lambda: muted.listener.connection_count == 0)
    muted.clock.advance(10.0)
    muted.entrances[0].mute(1.0)
    muted.clock.advance(10.0)
    await settle()
    assert muted.script.seen == [1]


async def test_a_stop_does_not_wait_for_a_mute(muted, frame, until):
    client = await muted.connect()
    client.send(frame(1), frame(2))
    await until(lambda: client.numbers == [1])
    await muted.listener.stop(grace_seconds=1.0)
    assert muted.listener.connection_count == 0
    assert muted.script.seen == [1]
