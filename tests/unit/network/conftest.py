"""A listener with a scripted dispatch on any net, and a client that records what it receives."""

import asyncio
import struct
from types import SimpleNamespace

import pytest

from ottla.answer_memory import AnswerMemory
from ottla.env.clock import ManualClock
from ottla.env.memory_net import MemoryNet, MemoryNetwork
from ottla.network.frame import ReceiveBudget
from ottla.network.limits import Limits
from ottla.network.listener import Listener
from ottla.pending import Pending

PRODUCE, FETCH = 0, 1


def frame(number, key=FETCH, size=0):
    """A request frame; ``number`` is its correlation id, ``size`` adds bytes to its body."""
    return struct.pack(">ihhi", 8 + size, key, 0, number) + bytes(size)


def number_of(view):
    return struct.unpack_from(">i", view, 4)[0]


def answer(number, size=0):
    return struct.pack(">ii", 4 + size, number) + bytes([number & 0xFF]) * size


def parse(received):
    """Return the correlation ids of the whole answers in ``received``; nothing may be left over."""
    numbers, position = [], 0
    while position < len(received):
        length, number = struct.unpack_from(">ii", received, position)
        assert position + 4 + length <= len(received), "an answer was cut off"
        numbers.append(number)
        position += 4 + length
    return numbers


class Client(asyncio.Protocol):
    """Keeps what it receives; can stop reading."""

    def __init__(self):
        self.received = bytearray()
        self.is_lost = False
        self.error = None
        self.saw_end = False

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.received += data

    def eof_received(self):
        self.saw_end = True

    def connection_lost(self, error):
        self.is_lost, self.error = True, error

    def send(self, *frames):
        self.transport.write(b"".join(frames))

    @property
    def numbers(self):
        return parse(self.received)


class Script:
    """A dispatch: answers at once, unless the test holds the request back."""

    def __init__(self):
        self.seen = []
        self.pending = {}
        self.held = set()  # Numbers answered later, by ``finish``.
        self.replies = {}  # Number to what the dispatch does: an answer or an exception.
        self.hook = None
        self.peers = []

    def open(self, peer, entrance):
        self.peers.append(peer)
        return self.dispatch

    def dispatch(self, view):
        number, key = number_of(view), struct.unpack_from(">h", view)[0]
        self.seen.append(number)
        if self.hook is not None:
            self.hook(number)
        if number in self.replies:
            reply = self.replies[number]
            if isinstance(reply, Exception):
                raise reply
            return reply
        if number in self.held:
            pending = self.pending[number] = Pending(overlaps=key == PRODUCE)
            return pending
        return [answer(number)]

    def finish(self, *numbers):
        for number in numbers:
            self.pending[number].resolve([answer(number)])


async def until(condition, turns=20_000):
    """Give the loop turns until ``condition`` holds."""
    for _ in range(turns):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not come to that")


async def settle(turns=60):
    """Let everything that is on its way arrive."""
    for _ in range(turns):
        await asyncio.sleep(0)


@pytest.fixture
def wires():
    """The words of these tests, for modules that cannot import a conftest."""
    return SimpleNamespace(
        FETCH=FETCH,
        PRODUCE=PRODUCE,
        Client=Client,
        Script=Script,
        answer=answer,
        frame=frame,
        number_of=number_of,
        parse=parse,
        settle=settle,
        until=until,
    )


@pytest.fixture(name="frame")
def frame_fixture():
    return frame


@pytest.fixture(name="until")
def until_fixture():
    return until


@pytest.fixture(name="settle")
def settle_fixture():
    return settle


@pytest.fixture
async def serve():
    """Start a listener: ``await serve(limits fields, net=, fragments=)`` -> everything about it."""
    started = []
    problems = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))

    async def start(
        *,
        net=None,
        fragments=None,
        clock=None,
        socket_buffer_bytes=64 * 1024,
        answer_bytes_max=1 << 28,
        **fields,
    ):
        if net is None:
            net = MemoryNet(
                MemoryNetwork(fragments=fragments, socket_buffer_bytes=socket_buffer_bytes)
            )
        clock = clock or ManualClock()
        limits = Limits(**fields)
        script = Script()
        budget = ReceiveBudget(limits.queued_bytes_max)
        answers = AnswerMemory(answer_bytes_max)
        listener = Listener(
            net=net,
            clock=clock,
            limits=limits,
            budget=budget,
            answers=answers,
            open_dispatch=script.open,
        )
        host, port = await listener.start(host="127.0.0.1", port=0)

        async def connect():
            _, client = await net.connect(Client, host=host, port=port)
            await until(lambda: listener.connection_count > 0 or client.is_lost)
            return client

        served = SimpleNamespace(
            answers=answers,
            budget=budget,
            clock=clock,
            connect=connect,
            limits=limits,
            listener=listener,
            net=net,
            script=script,
        )
        started.append(served)
        return served

    yield start
    for served in started:
        for connection in list(served.listener._connections):
            connection.abort()
        stop = asyncio.ensure_future(served.listener.stop(grace_seconds=0))
        await settle(10)
        served.clock.advance(1) if isinstance(served.clock, ManualClock) else None
        await asyncio.wait_for(stop, 5)
        assert served.budget.used_bytes == 0, "a connection kept receive memory"
        assert served.answers.used_bytes == 0, "a connection kept memory of answers"
    assert problems == []
