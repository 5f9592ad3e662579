"""The blocking stream against a socket: whole pieces arrive, in order, whatever their sizes."""

import socket
import threading

import pytest

from ottla.env.blocking import GATHERED_MAX, BlockingStream


@pytest.fixture
def pair():
    near, far = socket.socketpair()
    stream = BlockingStream(near)
    stream.set_timeout(20)
    yield stream, far
    stream.close()
    far.close()


@pytest.mark.parametrize(
    "sizes",
    [
        [10],
        [14, 60, 5_000_000, 3],
        [5_000_000, 0, 7, 3_000_000],
        [0, 0],
        [3] * (GATHERED_MAX + 1),
        [100_000] * GATHERED_MAX,
    ],
)
def test_pieces_arrive_whole_and_in_order(pair, sizes):
    stream, far = pair
    pieces = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    received = bytearray()

    def receive():
        while len(received) < sum(sizes):
            received.extend(far.recv(65536))

    reader = threading.Thread(target=receive)
    reader.start()
    stream.send(pieces)
    reader.join(20)
    assert received == b"".join(pieces)


def test_what_can_be_received_is_told_without_waiting(pair):
    stream, far = pair
    assert not stream.is_readable()
    far.sendall(b"abc")
    assert stream.is_readable()
    got = bytearray(3)
    stream.receive_into(memoryview(got))
    assert got == b"abc"
    assert not stream.is_readable()
    far.close()
    assert stream.is_readable()
    with pytest.raises(ConnectionResetError):
        stream.receive_into(memoryview(got))


def test_a_way_that_drops_silent_connections_is_kept_open_and_noticed():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        stream = BlockingStream.connect(*listening.getsockname(), timeout_seconds=20)
        held = stream._socket
        assert held.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert held.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= 60
        assert held.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        stream.close()
