"""The same promises on TCP, with both event loops."""

import asyncio
import contextlib
import errno
from types import SimpleNamespace

import pytest
import uvloop

from ottla.answer_memory import AnswerMemory
from ottla.env.clock import SystemClock
from ottla.env.memory_disk import MemoryDisk
from ottla.env.real_disk import RealDisk
from ottla.env.real_net import AsyncioNet
from ottla.network.frame import ReceiveBudget
from ottla.network.limits import Limits
from ottla.network.listener import Listener
from ottla.records.region import Region


@pytest.fixture(params=["asyncio", "uvloop"])
def on_loop(request):
    """Run a coroutine function on the loop under test; what the loop reports fails the test."""
    factory = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}[request.param]

    def run(story):
        async def limited():
            problems = []
            asyncio.get_running_loop().set_exception_handler(lambda _, c: problems.append(c))
            async with asyncio.timeout(20):
                await story()
            assert problems == []

        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(limited())

    return run


@pytest.fixture
def served(wires):
    """Start a listener on a free port of 127.0.0.1, and read answers by streams."""

    async def start(**fields):
        limits = Limits(**fields)
        script = wires.Script()
        budget = ReceiveBudget(limits.queued_bytes_max)
        listener = Listener(
            net=AsyncioNet(),
            clock=SystemClock(),
            limits=limits,
            budget=budget,
            answers=AnswerMemory(1 << 28),
            open_dispatch=script.open,
        )
        host, port = await listener.start(host="127.0.0.1", port=0)

        writers = []

        async def connect():
            reader, writer = await asyncio.open_connection(host, port)
            writers.append(writer)
            return reader, writer

        async def stop():
            for writer in writers:
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()
            await listener.stop(grace_seconds=1)
            assert budget.used_bytes == 0

        return SimpleNamespace(
            budget=budget, connect=connect, listener=listener, script=script, stop=stop
        )

    return start


async def happens(condition):
    """Wait for the other side; the fixture limits the time."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it did not come to that")


def test_pipelined_requests_are_answered_in_order(on_loop, served, wires):
    async def story():
        broker = await served()
        broker.script.held = set(range(0, 200, 3))
        reader, writer = await broker.connect()
        writer.write(b"".join(wires.frame(n, wires.PRODUCE, size=n * 17) for n in range(200)))
        for _ in range(50):
            await asyncio.sleep(0.001)
            done = [n for n, p in broker.script.pending.items() if not p.is_done]
            broker.script.finish(*reversed(done))
            if len(broker.script.seen) == 200 and not done:
                break
        received = await reader.readexactly(200 * 8)
        assert wires.parse(received) == list(range(200))
        await broker.stop()

    on_loop(story)


@pytest.mark.parametrize("disk", [MemoryDisk, RealDisk])
@pytest.mark.parametrize("size", [1, 31_000, 70_001, 5_000_000])
def test_regions_reach_a_slow_reader_whole(on_loop, served, wires, tmp_path, disk, size):
    """Read and written from memory; sent by the kernel from a real file, the larger ones."""

    async def story():
        broker = await served()
        data = bytes(range(256)) * (size // 256 + 1)
        path = str(tmp_path / "records.log") if disk is RealDisk else "/records.log"
        file = disk().open(path, create=True)
        file.write_at(0, data)
        for number in range(4):
            head = wires.answer(number, 0)
            head = (size + 4).to_bytes(4, "big") + head[4:]
            broker.script.replies[number] = [head, Region(file, 0, size)]
        reader, writer = await broker.connect()
        writer.write(b"".join(wires.frame(n) for n in range(4)))
        for number in range(4):
            await asyncio.sleep(0.02)
            head = await reader.readexactly(8)
            assert head == (size + 4).to_bytes(4, "big") + number.to_bytes(4, "big")
            assert await reader.readexactly(size) == data[:size]
        await broker.stop()

    on_loop(story)


def test_a_malformed_frame_is_answered_by_the_end(on_loop, served, wires):
    async def story():
        broker = await served()
        reader, writer = await broker.connect()
        writer.write(wires.frame(1) + b"\xff\xff\xff\xff" + bytes(100))
        assert wires.parse(await reader.read(-1)) == [1]
        await broker.stop()

    on_loop(story)


def test_a_half_closed_client_gets_its_answers(on_loop, served, wires):
    async def story():
        broker = await served()
        broker.script.held = {1, 2}
        reader, writer = await broker.connect()
        writer.write(wires.frame(1) + wires.frame(2) + wires.frame(3))
        writer.write_eof()
        await happens(lambda: len(broker.script.seen) == 1)
        broker.script.finish(1)
        await happens(lambda: len(broker.script.seen) == 2)
        await asyncio.sleep(0.01)  # The end of the stream arrives now, with an answer owed.
        broker.script.finish(2)
        assert wires.parse(await reader.read(-1)) == [1, 2, 3]
        await broker.stop()

    on_loop(story)


def test_a_peer_that_never_reads_is_cut_off(on_loop, served, wires):
    async def story():
        broker = await served(write_stall_seconds=0.3, write_buffer_bytes=100_000)
        for number in range(2000):
            broker.script.replies[number] = [wires.answer(number, size=100_000)]
        _, writer = await broker.connect()
        writer.transport.pause_reading()
        writer.write(b"".join(wires.frame(n) for n in range(2000)))
        await happens(lambda: broker.listener.connection_count == 0)
        assert len(broker.script.seen) < 500, "the kernel's buffers, then no more"
        writer.transport.abort()
        await broker.stop()

    on_loop(story)


def test_a_stop_answers_what_is_in_flight_and_cuts_off_the_rest(on_loop, served, wires):
    async def story():
        broker = await served()
        broker.script.held = {1, 2}
        good, good_writer = await broker.connect()
        stuck, stuck_writer = await broker.connect()
        good_writer.write(wires.frame(1))
        stuck_writer.write(wires.frame(2))
        await happens(lambda: len(broker.script.seen) == 2)
        stopping = asyncio.ensure_future(broker.listener.stop(grace_seconds=0.2))
        await asyncio.sleep(0)
        broker.script.finish(1)
        assert wires.parse(await good.read(-1)) == [1]
        await stopping
        with contextlib.suppress(ConnectionResetError):
            assert await stuck.read(-1) == b""
        broker.script.finish(2)
        await broker.stop()

    on_loop(story)


def test_the_connection_beyond_the_limit_is_closed_at_once(on_loop, served, wires):
    async def story():
        broker = await served(connections_max=1)
        reader, writer = await broker.connect()
        writer.write(wires.frame(1))
        assert wires.parse(await reader.readexactly(8)) == [1]
        refused, _ = await broker.connect()
        assert await refused.read(-1) == b""
        await broker.stop()

    on_loop(story)


def test_a_listener_survives_a_moment_without_descriptors(on_loop, monkeypatch):
    async def story():
        listening = await AsyncioNet().listen(
            asyncio.Protocol, host="127.0.0.1", port=0, backlog=10, paused=True
        )
        loop, tries = asyncio.get_running_loop(), []

        class Short:
            """The loop, short of descriptors at first."""

            async def create_server(self, *given, **named):
                tries.append(None)
                if len(tries) < 3:
                    raise OSError(errno.EMFILE, "Too many open files")
                accepted.set_result(None)
                return await loop.create_server(*given, **named)

            def __getattr__(self, name):
                return getattr(loop, name)

        accepted = loop.create_future()
        monkeypatch.setattr("ottla.env.real_net.asyncio.get_running_loop", Short)
        listening.resume_accepting()
        await accepted
        monkeypatch.undo()
        host, port = listening.address
        _, writer = await asyncio.open_connection(host, port)
        writer.close()
        await listening.close()

    on_loop(story)
