"""What every net promises: on asyncio's and uvloop's TCP, and in memory, whole and in fragments."""

import asyncio
from typing import ClassVar

import pytest
import uvloop

from ottla.env.memory_net import MemoryNet, MemoryNetwork
from ottla.env.real_net import AsyncioNet
from ottla.env.rng import SeededRng

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
NETS = {
    "tcp": AsyncioNet,
    "memory": MemoryNet,
    "fragments": lambda: MemoryNet(MemoryNetwork(fragments=SeededRng(3))),
}


@pytest.fixture(params=[f"{net} on {loop}" for net in NETS for loop in LOOPS])
def kind(request):
    return request.param.split(" on ")


@pytest.fixture
def net(kind):
    return NETS[kind[0]]()


@pytest.fixture
def on_loop(kind):
    """Run a coroutine on the loop under test, with a limit; loop errors fail the test."""

    def on_loop(coroutine):
        async def limited():
            errors = []
            asyncio.get_running_loop().set_exception_handler(lambda _, c: errors.append(c))
            async with asyncio.timeout(20):
                await coroutine
                # uvloop calls an open transport a leak.
                for recorder in Recorder.made:
                    recorder.transport.abort()
                    await recorder.lost
                Recorder.made.clear()
                await asyncio.sleep(0)
            assert errors == []

        with asyncio.Runner(loop_factory=LOOPS[kind[1]]) as runner:
            runner.run(limited())

    return on_loop


class Recorder(asyncio.Protocol):
    """Keeps everything that happens to a connection."""

    keep_open = False
    made: ClassVar[list] = []

    def __init__(self):
        self.received = bytearray()
        self.events = []
        self.lost = asyncio.get_running_loop().create_future()
        self.changed = asyncio.Event()

    def connection_made(self, transport):
        self.transport = transport
        self.made.append(self)
        self._note("made")

    def data_received(self, data):
        assert isinstance(data, bytes)
        self.received += data
        self.changed.set()

    def eof_received(self):
        self._note("eof")
        return self.keep_open

    def pause_writing(self):
        self._note("pause")

    def resume_writing(self):
        self._note("resume")

    def connection_lost(self, error):
        self._note("lost")
        self.lost.set_result(error)

    def _note(self, event):
        self.events.append(event)
        self.changed.set()

    async def until(self, condition):
        while not condition():
            self.changed.clear()
            await self.changed.wait()


class BufferedRecorder(asyncio.BufferedProtocol, Recorder):
    """The same, over a buffer of its own that is smaller than what comes."""

    def __init__(self):
        super().__init__()
        self.buffer = bytearray(1000)

    def get_buffer(self, sizehint):
        return self.buffer

    def buffer_updated(self, nbytes):
        self.received += self.buffer[:nbytes]
        self.changed.set()


class HalfOpenRecorder(Recorder):
    keep_open = True


class Acceptor:
    """Makes server protocols and hands them to the test."""

    def __init__(self, factory=Recorder):
        self.factory = factory
        self.protocols = asyncio.Queue()
        self.count = 0

    def __call__(self):
        protocol = self.factory()
        self.count += 1
        self.protocols.put_nowait(protocol)
        return protocol


async def pair(net, client_factory=Recorder, server_factory=Recorder):
    acceptor = Acceptor(server_factory)
    listening = await net.listen(acceptor, host="127.0.0.1", port=0, backlog=50)
    host, port = listening.address
    _, client = await net.connect(client_factory, host=host, port=port)
    server = await acceptor.protocols.get()
    await server.until(lambda: "made" in server.events)
    return listening, client, server


def test_bytes_go_both_ways_in_order(net, on_loop):
    async def story():
        listening, client, server = await pair(net)
        data = bytes(range(256)) * 4096
        client.transport.write(b"hello ")
        client.transport.write(memoryview(data))
        client.transport.writelines([b"!", bytearray(b"?")])
        await server.until(lambda: len(server.received) == len(data) + 8)
        assert server.received == b"hello " + data + b"!?"
        server.transport.write(b"answer")
        await client.until(lambda: client.received == b"answer")
        await listening.close()

    on_loop(story())


def test_a_buffered_protocol_receives_into_its_buffer(net, on_loop):
    async def story():
        listening, client, server = await pair(net, server_factory=BufferedRecorder)
        data = bytes(range(251)) * 100
        client.transport.write(data)
        await server.until(lambda: len(server.received) == len(data))
        assert server.received == data
        await listening.close()

    on_loop(story())


def test_a_written_buffer_may_be_reused_at_once(net, on_loop):
    async def story():
        listening, client, server = await pair(net)
        server.transport.pause_reading()
        buffer = bytearray(b"a" * 1000)
        client.transport.write(bytes(3_000_000))
        client.transport.write(buffer)
        buffer[:] = b"b" * 1000
        server.transport.resume_reading()
        await server.until(lambda: len(server.received) == 3_001_000)
        assert server.received[-1000:] == b"a" * 1000
        await listening.close()

    on_loop(story())


def test_close_delivers_what_was_written_and_both_ends_hear_of_the_end(net, on_loop):
    async def story():
        listening, client, server = await pair(net)
        client.transport.write(b"x" * 500_000)
        client.transport.close()
        assert client.transport.is_closing()
        client.transport.write(b"too late")
        assert await server.lost is None
        assert await client.lost is None
        assert len(server.received) == 500_000
        assert server.events == ["made", "eof", "lost"]
        assert client.events[-1] == "lost"
        await listening.close()

    on_loop(story())


def test_abort_is_a_reset_for_the_peer(net, on_loop):
    async def story():
        listening, client, server = await pair(net)
        # Unread bytes make a kernel answer the close with a reset instead of an end.
        client.transport.pause_reading()
        server.transport.write(b"x" * 100)
        await asyncio.sleep(0.02)
        client.transport.abort()
        assert await client.lost is None
        assert isinstance(await server.lost, ConnectionResetError)
        assert client.transport.is_closing()
        await listening.close()

    on_loop(story())


def test_half_close_lets_the_answer_through(net, on_loop):
    async def story():
        listening, client, server = await pair(net, server_factory=HalfOpenRecorder)
        assert client.transport.can_write_eof()
        client.transport.write(b"question")
        client.transport.write_eof()
        await server.until(lambda: "eof" in server.events)
        assert server.received == b"question"
        server.transport.write(b"answer")
        server.transport.close()
        await client.lost
        assert client.received == b"answer"
        await listening.close()

    on_loop(story())


def test_a_peer_that_does_not_read_pauses_the_writer(net, on_loop):
    async def story():
        listening, client, server = await pair(net)
        server.transport.pause_reading()
        client.transport.set_write_buffer_limits(high=100_000, low=10_000)
        # More than the kernel's own buffers hold, on every machine.
        client.transport.write(bytes(16_000_000))
        assert client.events == ["made", "pause"]
        assert client.transport.get_write_buffer_size() > 100_000
        await asyncio.sleep(0.02)
        assert client.events == ["made", "pause"]
        server.transport.resume_reading()
        await client.until(lambda: "resume" in client.events)
        assert client.transport.get_write_buffer_size() <= 10_000
        await server.until(lambda: len(server.received) == 16_000_000)
        assert client.events == ["made", "pause", "resume"]
        await listening.close()

    on_loop(story())


def test_paused_reading_delivers_nothing_until_resumed(net, on_loop):
    async def story():
        listening, client, server = await pair(net)
        server.transport.pause_reading()
        assert not server.transport.is_reading()
        client.transport.write(b"wait")
        await asyncio.sleep(0.02)
        assert server.received == b""
        server.transport.resume_reading()
        assert server.transport.is_reading()
        await server.until(lambda: server.received == b"wait")
        await listening.close()

    on_loop(story())


def test_addresses_are_told(net, on_loop):
    async def story():
        listening, client, server = await pair(net)
        assert listening.address[1] > 0
        peer = client.transport.get_extra_info("peername")
        assert peer[1] == listening.address[1]
        assert server.transport.get_extra_info("peername")[:2] == tuple(
            client.transport.get_extra_info("sockname")[:2]
        )
        await listening.close()

    on_loop(story())


def test_nobody_listening_is_a_refused_connection(net, on_loop):
    async def story():
        listening = await net.listen(Acceptor(), host="127.0.0.1", port=0, backlog=5)
        host, port = listening.address
        await listening.close()
        with pytest.raises(ConnectionRefusedError):
            await net.connect(Recorder, host=host, port=port)

    on_loop(story())


def test_a_port_in_use_is_refused_and_free_after_close(net, on_loop):
    async def story():
        first = await net.listen(Acceptor(), host="127.0.0.1", port=0, backlog=5)
        host, port = first.address
        with pytest.raises(OSError, match=f"{port}.*in use"):
            await net.listen(Acceptor(), host=host, port=port, backlog=5)
        await first.close()
        second = await net.listen(Acceptor(), host=host, port=port, backlog=5)
        assert second.address == (host, port)
        await second.close()

    on_loop(story())


def test_connections_live_on_when_listening_ends(net, on_loop):
    async def story():
        listening, client, server = await pair(net)
        await listening.close()
        client.transport.write(b"still")
        await server.until(lambda: server.received == b"still")
        client.transport.close()
        assert await server.lost is None

    on_loop(story())


def test_paused_accepting_leaves_connections_waiting(net, on_loop):
    async def story():
        acceptor = Acceptor()
        listening = await net.listen(acceptor, host="127.0.0.1", port=0, backlog=50)
        host, port = listening.address
        for _ in range(3):
            listening.pause_accepting()
            listening.pause_accepting()
            _, client = await net.connect(Recorder, host=host, port=port)
            client.transport.write(b"early")
            before = acceptor.count
            await asyncio.sleep(0.02)
            assert acceptor.count == before
            listening.resume_accepting()
            listening.resume_accepting()
            server = await acceptor.protocols.get()
            await server.until(lambda server=server: server.received == b"early")
        assert acceptor.count == 3
        await listening.close()

    on_loop(story())


def test_nobody_is_accepted_before_a_paused_listener_resumes(net, on_loop):
    async def story():
        acceptor = Acceptor()
        listening = await net.listen(acceptor, host="127.0.0.1", port=0, backlog=50, paused=True)
        host, port = listening.address
        await net.connect(Recorder, host=host, port=port)
        await asyncio.sleep(0.02)
        assert acceptor.count == 0
        listening.resume_accepting()
        await acceptor.protocols.get()
        await listening.close()
        never = await net.listen(acceptor, host="127.0.0.1", port=0, backlog=50, paused=True)
        await never.close()

    on_loop(story())


def test_the_last_word_wins_when_accepting_is_toggled_at_once(net, on_loop):
    async def story():
        acceptor = Acceptor()
        listening = await net.listen(acceptor, host="127.0.0.1", port=0, backlog=50)
        host, port = listening.address
        for toggle in (
            listening.pause_accepting,
            listening.resume_accepting,
            listening.pause_accepting,
            listening.resume_accepting,
            listening.pause_accepting,
        ):
            toggle()
        await asyncio.sleep(0.02)
        await net.connect(Recorder, host=host, port=port)
        await asyncio.sleep(0.02)
        assert acceptor.count == 0
        listening.pause_accepting()
        listening.resume_accepting()
        await acceptor.protocols.get()
        await listening.close()

    on_loop(story())


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("between", range(4))
def test_the_last_word_wins_in_whichever_turns_of_the_loop_they_come(net, on_loop, before, between):
    """A resume of the turn in which the one before had all but ended was lost for good."""

    async def story():
        acceptor = Acceptor()
        listening = await net.listen(acceptor, host="127.0.0.1", port=0, backlog=50, paused=True)
        listening.resume_accepting()
        for _ in range(before):
            await asyncio.sleep(0)
        listening.pause_accepting()
        for _ in range(between):
            await asyncio.sleep(0)
        listening.resume_accepting()
        host, port = listening.address
        await net.connect(Recorder, host=host, port=port)
        async with asyncio.timeout(5):
            await acceptor.protocols.get()
        await listening.close()

    on_loop(story())


def test_every_loopback_name_works(net, on_loop):
    async def story():
        listening = await net.listen(acceptor := Acceptor(), host="localhost", port=0, backlog=5)
        _, client = await net.connect(Recorder, host="localhost", port=listening.address[1])
        server = await acceptor.protocols.get()
        client.transport.write(b"hi")
        await server.until(lambda: server.received == b"hi")
        await listening.close()
        everywhere = await net.listen(acceptor, host="", port=0, backlog=5)
        await net.connect(Recorder, host="127.0.0.1", port=everywhere.address[1])
        await acceptor.protocols.get()
        await everywhere.close()

    on_loop(story())
