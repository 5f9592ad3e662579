"""The awkward sides of a memory net: fragments, cut and reset links, a full backlog, hosts."""

import asyncio

import pytest

from ottla.env.memory_net import MemoryNet, MemoryNetwork
from ottla.env.rng import SeededRng


class Recorder(asyncio.Protocol):
    def __init__(self):
        self.pieces = []
        self.lost = []

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.pieces.append(data)

    def connection_lost(self, error):
        self.lost.append(error)


class Accepting:
    def __init__(self):
        self.protocols = []

    def __call__(self):
        self.protocols.append(Recorder())
        return self.protocols[-1]


async def turns(count=20):
    for _ in range(count):
        await asyncio.sleep(0)


async def connected(network):
    accepting = Accepting()
    await network.host("a").listen(accepting, host="", port=9092, backlog=5)
    _, client = await network.host("b").connect(Recorder, host="a", port=9092)
    await turns(3)
    return client, accepting.protocols[0]


async def test_fragments_are_small_and_repeat_with_the_seed():
    async def pieces(seed):
        client, server = await connected(MemoryNetwork(fragments=SeededRng(seed)))
        data = bytes(range(256)) * 400
        client.transport.write(data)
        while sum(map(len, server.pieces)) < len(data):  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert b"".join(server.pieces) == data
        return [len(piece) for piece in server.pieces]

    first = await pieces(1)
    assert len(first) > 3
    assert first == await pieces(1)
    assert first != await pieces(2)


async def test_a_cut_link_is_silent_and_delivers_after_it_is_mended():
    network = MemoryNetwork()
    client, server = await connected(network)
    network.cut("a", "b")
    client.transport.write(b"into the dark")
    client.transport.close()
    await turns()
    assert server.pieces == []
    with pytest.raises(OSError, match="no way from b to a"):
        await network.host("b").connect(Recorder, host="a", port=9092)
    await network.host("c").connect(Recorder, host="a", port=9092)
    network.mend("b", "a")
    await turns()
    assert server.pieces == [b"into the dark"]
    assert server.lost == [None]


async def test_a_reset_link_breaks_its_connections_and_takes_new_ones():
    network = MemoryNetwork()
    client, server = await connected(network)
    network.reset("a", "b")
    await turns()
    assert isinstance(client.lost[0], ConnectionResetError)
    assert isinstance(server.lost[0], ConnectionResetError)
    await network.host("b").connect(Recorder, host="a", port=9092)


async def test_a_writer_learns_that_the_peer_is_gone():
    client, server = await connected(MemoryNetwork())
    client.transport.pause_reading()
    server.transport.close()
    await turns()
    assert server.lost == [None]
    client.transport.resume_reading()
    await turns()
    assert client.lost == [None]


async def test_a_failing_protocol_loses_its_connection_only():
    errors = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    client, server = await connected(MemoryNetwork())
    server.data_received = lambda data: 1 // 0
    client.transport.write(b"x")
    await turns()
    assert isinstance(server.lost[0], ZeroDivisionError)
    assert isinstance(client.lost[0], ConnectionResetError)
    assert [type(context["exception"]) for context in errors] == [ZeroDivisionError]


async def test_a_full_backlog_refuses():
    net = MemoryNet()
    listening = await net.listen(Accepting(), host="", port=0, backlog=2)
    listening.pause_accepting()
    for _ in range(3):
        await net.connect(Recorder, host="localhost", port=listening.address[1])
    with pytest.raises(ConnectionRefusedError, match="backlog"):
        await net.connect(Recorder, host="localhost", port=listening.address[1])


async def test_closing_resets_what_was_never_accepted():
    net = MemoryNet()
    listening = await net.listen(accepting := Accepting(), host="", port=0, backlog=2)
    listening.pause_accepting()
    _, client = await net.connect(Recorder, host="127.0.0.1", port=listening.address[1])
    await listening.close()
    await turns()
    assert isinstance(client.lost[0], ConnectionResetError)
    assert accepting.protocols == []


async def test_hosts_have_ports_of_their_own():
    network = MemoryNetwork()
    for host in ("a", "b"):
        listening = await network.host(host).listen(Accepting(), host="", port=9092, backlog=1)
        assert listening.address == (host, 9092)
    with pytest.raises(OSError, match="in use"):
        await network.host("a").listen(Accepting(), host="127.0.0.1", port=9092, backlog=1)
    with pytest.raises(ConnectionRefusedError):
        await network.host("c").connect(Recorder, host="localhost", port=9092)


async def test_write_limits_are_checked():
    client, _ = await connected(MemoryNetwork())
    client.transport.set_write_buffer_limits(high=100)
    assert client.transport.get_write_buffer_limits() == (25, 100)
    with pytest.raises(ValueError, match="must be"):
        client.transport.set_write_buffer_limits(high=1, low=2)
    client.transport.write_eof()
    with pytest.raises(RuntimeError, match="write_eof"):
        client.transport.write(b"x")
