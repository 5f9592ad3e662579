"""No task of the broker dies silently."""

import asyncio
import gc

import pytest

from ottla.env import real_net
from ottla.env.real_net import AsyncioNet
from ottla.env.tasks import begin_task


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


async def returning():
    await asyncio.sleep(0)
    return 7


async def failing():
    await asyncio.sleep(0)
    raise ValueError("of ours")


async def test_its_end_is_told_whatever_it_is():
    told = []
    begin_task(returning(), name="a", ended=lambda task: told.append(task.result()))
    begin_task(failing(), name="b", ended=lambda task: told.append(task.exception()))
    waiting = begin_task(asyncio.sleep(60), name="c", ended=told.append)
    gc.collect()
    await turns()
    assert told[0] == 7
    assert isinstance(told[1], ValueError)
    waiting.cancel()
    await turns()
    assert told[2].cancelled()


async def test_it_lives_although_nobody_keeps_it():
    told = []

    async def work():
        nobody_else = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.05, _set, _weak(nobody_else))
        del nobody_else
        await asyncio.sleep(0.1)

    begin_task(work(), name="work", ended=told.append)
    for _ in range(4):
        gc.collect()
        await asyncio.sleep(0.05)
    assert [task.cancelled() for task in told] == [False]


def _weak(future):
    import weakref

    return weakref.ref(future)


def _set(reference):
    future = reference()
    if future is not None:
        future.set_result(None)


@pytest.mark.parametrize("fault", [OSError(24, "no descriptor"), ValueError("of ours")])
async def test_a_listener_accepts_again_whatever_kept_it_from_it(monkeypatch, fault):
    monkeypatch.setattr(real_net, "RETRY_SECONDS", 0.01)
    faults, accepted = [fault, fault], asyncio.Event()

    class Peer(asyncio.Protocol):
        def connection_made(self, transport):
            accepted.set()
            transport.close()

    listening = await AsyncioNet().listen(Peer, host="127.0.0.1", port=0, backlog=5, paused=True)
    serve = listening._serve

    async def refused():
        if faults:
            raise faults.pop()
        await serve()

    monkeypatch.setattr(listening, "_serve", refused)
    listening.resume_accepting()
    host, port = listening.address
    _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), 10)
    await asyncio.wait_for(accepted.wait(), 10)
    assert not faults
    writer.close()
    await listening.close()
