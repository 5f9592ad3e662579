"""Attacks on a TLS listener over TCP, on both event loops: others are served all the while.

Every bound is a count or an order of events, none is a time.
"""

import asyncio
import contextlib
import logging
import ssl
from types import SimpleNamespace

import pytest
import uvloop

from ottla.answer_memory import AnswerMemory
from ottla.env.clock import SystemClock
from ottla.env.executor import ThreadExecutor
from ottla.env.memory_disk import MemoryDisk
from ottla.env.real_net import AsyncioNet
from ottla.env.server_tls import ServerTls, ServerTlsFiles
from ottla.network.frame import ReceiveBudget
from ottla.network.handshakes import STEPS_MAX, Handshakes
from ottla.network.limits import Limits
from ottla.network.listener import Listener
from ottla.network.tls import TlsLayer
from ottla.records.region import Region
from tests.certificates import certificates
from tests.tls_client import trusting


@pytest.fixture(params=["asyncio", "uvloop"])
def on_loop(request):
    factory = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}[request.param]

    def run(story):
        async def limited():
            problems = []
            asyncio.get_running_loop().set_exception_handler(lambda _, c: problems.append(c))
            async with asyncio.timeout(50):
                await story()
            assert problems == []

        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(limited())

    return run


class Watched:
    """An executor that notes how many jobs it has at a time."""

    def __init__(self):
        self._threads = ThreadExecutor(2, "test-login")
        self._now = 0
        self.most = 0

    def submit(self, work, done, *, place=""):
        self._now += 1
        self.most = max(self.most, self._now)

        def ended(result, error):
            self._now -= 1
            done(result, error)

        self._threads.submit(work, ended)

    def close(self):
        self._threads.close()


@pytest.fixture
def served(wires):
    async def start(*, seconds=30.0, with_tls=True, **fields):
        limits, script, notes = Limits(**fields), wires.Script(), []
        budget, clock, executor = ReceiveBudget(1 << 28), SystemClock(), Watched()
        listener = Listener(
            net=AsyncioNet(),
            clock=clock,
            limits=limits,
            budget=budget,
            answers=AnswerMemory(1 << 28),
            open_dispatch=script.open,
        )
        handshakes = Handshakes(
            executor, clock, seconds=seconds, note=lambda host, why: notes.append((host, why))
        )
        tls = ServerTls.load(ServerTlsFiles(keystore_file=str(certificates() / "server.pem")))
        cover = (
            (lambda connection: TlsLayer(connection, handshakes, tls.open)) if with_tls else None
        )
        host, port = await listener.start(host="127.0.0.1", port=0, cover=cover)

        async def ask(number=1):
            """Be an honest client: one request, one answer."""
            reader, writer = await asyncio.open_connection(
                host, port, ssl=trusting() if with_tls else None
            )
            writer.write(wires.frame(number))
            answer = await reader.readexactly(8)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            return answer == wires.answer(number)

        async def stop():
            await listener.stop(grace_seconds=0)
            executor.close()
            assert handshakes.count == 0
            assert budget.used_bytes == 0

        return SimpleNamespace(
            address=(host, port),
            ask=ask,
            executor=executor,
            handshakes=handshakes,
            listener=listener,
            notes=notes,
            script=script,
            stop=stop,
        )

    return start


async def happens(condition):
    """Wait for the other side; the fixture limits the time."""
    for _ in range(20_000):
        if condition():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it did not come to that")


async def rest_of(reader):
    """Read to the end, however it comes."""
    with contextlib.suppress(ConnectionError):
        return await reader.read()
    return b""


def client_hello():
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    engine = trusting().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        engine.do_handshake()
    return outgoing.read()


def test_large_answers_arrive_whole_and_in_order(on_loop, served, wires):
    async def story():
        broker = await served()
        size = 5_000_000
        data = bytes(range(256)) * (size // 256 + 1)
        file = MemoryDisk().open("/records.log", create=True)
        file.write_at(0, data)
        for number in range(4):
            head = (size + 4).to_bytes(4, "big") + number.to_bytes(4, "big")
            broker.script.replies[number] = [head, Region(file, 0, size)]
        reader, writer = await asyncio.open_connection(*broker.address, ssl=trusting())
        writer.write(b"".join(wires.frame(n, size=200_000) for n in range(4)))
        for number in range(4):
            head = await reader.readexactly(8)
            assert head[4:] == number.to_bytes(4, "big")
            assert await reader.readexactly(size) == data[:size]
        writer.close()
        await broker.stop()

    on_loop(story)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\0\0\0\x0a\0\x12\0\0\0\0\0\x07\xff\xff",
        b"\x80\x2e\x01\x00\x02" + bytes(41),
        b"\x15\x03\x01\x00\x02\x02\x28",
        b"\x16\x03\x01\x02\x00" + bytes(range(256)) * 2,
        bytes(100_000),
    ],
)
def test_what_is_no_handshake_closes_and_is_named(on_loop, served, data):
    async def story():
        broker = await served()
        reader, writer = await asyncio.open_connection(*broker.address)
        writer.write(data)
        await rest_of(reader)
        writer.close()
        assert len(broker.notes) == 1
        assert await broker.ask()
        await broker.stop()

    on_loop(story)


def test_half_handshakes_by_the_hundred_leave_the_others_in_peace(on_loop, served):
    async def story():
        broker = await served(connections_per_ip_max=10_000)
        hello = client_hello()
        flood = []
        for number in range(300):
            reader, writer = await asyncio.open_connection(*broker.address)
            writer.write(hello[: len(hello) - number % 2])  # Each second one lacks a byte.
            flood.append((reader, writer))
        assert await broker.ask()
        await happens(lambda: broker.listener.connection_count == 300)
        assert broker.executor.most <= STEPS_MAX
        assert broker.handshakes.count == 300
        for _, writer in flood:
            writer.transport.abort()
        await happens(lambda: broker.listener.connection_count == 0)
        assert await broker.ask()
        await broker.stop()

    on_loop(story)


def test_who_does_not_finish_the_handshake_is_cut_off(on_loop, served):
    async def story():
        broker = await served(seconds=0.3)
        silent = await asyncio.open_connection(*broker.address)
        half = await asyncio.open_connection(*broker.address)
        half[1].write(client_hello())
        for reader, writer in (silent, half):
            await rest_of(reader)
            writer.close()
        assert {why for _, why in broker.notes} == {"it took too long for the handshake"}
        await broker.stop()

    on_loop(story)


def test_a_client_that_leaves_early_leaves_nothing(on_loop, served):
    async def story():
        broker = await served()
        hello = client_hello()
        for number in range(60):
            _, writer = await asyncio.open_connection(*broker.address)
            writer.write(hello[: number * len(hello) // 60])
            if number % 2:
                writer.transport.abort()
            else:
                writer.close()
        assert await broker.ask()
        await happens(lambda: broker.listener.connection_count == 0)
        await broker.stop()

    on_loop(story)


def test_renegotiation_is_refused(on_loop, served):
    """By what OpenSSL's own client does for an R on its input, with TLS 1.2."""

    async def story():
        broker = await served()
        host, port = broker.address
        client = await asyncio.create_subprocess_exec(
            *("openssl", "s_client", "-connect", f"{host}:{port}", "-tls1_2"),
            *("-CAfile", str(certificates() / "ca.pem")),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said = await client.stdout.readuntil(b"---\n")
        client.stdin.write(b"R\n")
        said += await client.stdout.read()
        await client.wait()
        assert b"RENEGOTIATING" in said
        assert b"no renegotiation" in said
        assert await broker.ask()
        await broker.stop()

    on_loop(story)


def test_tls_at_a_listener_without_it_is_named(on_loop, served, caplog):
    async def story():
        broker = await served(with_tls=False)
        caplog.set_level(logging.INFO)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection(*broker.address, ssl=trusting())
        assert "it speaks TLS, and this listener does not" in caplog.text
        assert await broker.ask()
        await broker.stop()

    on_loop(story)
