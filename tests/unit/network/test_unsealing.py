"""What comes from the wire: records in any pieces, into buffers of any size."""

import contextlib
import random
import ssl

import pytest

from ottla.env.server_tls import ServerTls, ServerTlsFiles
from ottla.network.unsealing import RECORD_BYTES_MAX, Unsealing
from tests.certificates import certificates
from tests.tls_client import trusting


class Pair:
    """A client's engine, and ours with what it is fed."""

    def __init__(self, version):
        files = ServerTlsFiles(keystore_file=str(certificates() / "server.pem"))
        self.engine = ServerTls.load(files).open()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = trusting(version=version).wrap_bio(
            self._incoming, self._outgoing, server_hostname="localhost"
        )
        self.reads = 0
        is_shaken = False
        while not is_shaken:
            with contextlib.suppress(ssl.SSLWantReadError):
                self.client.do_handshake()
            self.engine.feed(memoryview(self._outgoing.read()))
            is_shaken = self.engine.shake()
            self._incoming.write(self.engine.take())
        self.unsealing = Unsealing(self)
        self.out = bytearray()

    def seal(self, data):
        self.client.write(data)
        return self._outgoing.read()

    def end(self):
        with pytest.raises(ssl.SSLWantReadError):
            self.client.unwrap()
        return self._outgoing.read()

    # The engine, counted.

    def feed(self, data):
        return self.engine.feed(data)

    def read_into(self, buffer):
        self.reads += 1
        return self.engine.read_into(buffer)

    @property
    def has_ended(self):
        return self.engine.has_ended

    def receive(self, wire, room=1 << 17):
        """Give out what ``wire`` brings, as a layer does."""
        scratch = bytearray(wire)
        received = memoryview(scratch)
        buffer = memoryview(bytearray(room))
        while True:
            filled = self.unsealing.fill(buffer, received)
            received = None
            self.out += buffer[:filled]
            if filled < room:
                break
        self.unsealing.keep()
        scratch[:] = bytes(len(scratch))  # Another connection receives there.


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def pair(request):
    return Pair(request.param)


SIZES = (1, 5, 900, 16_384, 16_385, 40_000)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("room", [1, 700, 16_384, 1 << 17])
def test_any_pieces_and_any_room_give_the_same_bytes(pair, seed, room):
    choice = random.Random(seed)
    data = [choice.randbytes(choice.choice(SIZES if room > 1 else (1, 5, 90))) for _ in range(12)]
    wire = b"".join(pair.seal(each) for each in data)
    longest = choice.choice([3, 200, 17_000, 300_000])
    while wire:
        size = choice.randint(1, longest)
        pair.receive(wire[:size], room)
        wire = wire[size:]
    assert pair.out == b"".join(data)
    assert pair.unsealing.kept_bytes == 0


def test_the_library_is_asked_once_for_each_record(pair):
    """Each call without contents is an exception, which costs more than a small record."""
    pair.receive(pair.seal(b"first"))
    pair.reads = 0
    wire = b"".join(pair.seal(bytes(100)) for _ in range(20))
    for at in range(0, len(wire), 1000):
        pair.receive(wire[at : at + 1000])
        assert pair.unsealing.is_settled
    assert pair.reads == 20


def test_records_that_came_with_the_handshakes_end_are_given_out(pair):
    pair.engine.feed(memoryview(pair.seal(b"one") + pair.seal(b"two")))
    pair.receive(pair.seal(b"three"))
    assert pair.out == b"onetwothree"


@pytest.mark.parametrize("came_with_the_handshake", [False, True])
def test_what_stands_before_a_broken_record_is_given_out(pair, came_with_the_handshake):
    whole, broken = pair.seal(b"whole"), bytearray(pair.seal(b"broken"))
    broken[-1] ^= 1
    if came_with_the_handshake:
        pair.engine.feed(memoryview(whole + broken))
        pair.receive(pair.seal(b"behind"))
    else:
        pair.receive(whole + broken + pair.seal(b"behind"))
    assert pair.out == b"whole"
    assert pair.unsealing.broken is not None
    assert not pair.unsealing.is_settled


def test_a_record_that_says_it_is_too_long_is_refused_at_its_header(pair):
    good = pair.seal(b"good")
    pair.receive(good + b"\x17\x03\x03" + RECORD_BYTES_MAX.to_bytes(2, "big"))
    assert pair.out == b"good"
    assert "length too long" in str(pair.unsealing.broken)


def test_nothing_is_given_out_behind_the_end(pair):
    pair.receive(pair.seal(b"last") + pair.end() + b"\x17\x03\x03\x00\x20" * 9)
    assert pair.out == b"last"
    assert pair.has_ended
    assert pair.unsealing.broken is None
    assert not pair.unsealing.is_settled
