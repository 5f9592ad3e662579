import asyncio
import struct

import pytest

from ottla.env.clock import ManualClock
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.remote.link import FRAME_BYTES_MAX
from ottla.metadata.remote.messages import Changes, Commit, Found, Kind, Number, OpenSession, Watch
from ottla.metadata.remote.server import REQUESTS_MAX, StoreServer
from ottla.metadata.remote.store import CORRELATION_MAX, RemoteStore
from ottla.metadata.store import Ambiguous, Guard, Put, SessionState, Unavailable


class Wire(asyncio.Transport):
    """The other end of a link, in the test's hands."""

    def __init__(self, link):
        super().__init__()
        self.link = link
        self.frames = []
        self.whole = []
        self.on_frame = lambda kind, body: None
        self.is_closed = self.is_paused = False
        link.connection_made(self)

    def write(self, data):
        kind, correlation = struct.unpack_from(">bi", data, 4)
        self.frames.append((kind, correlation, data[9:]))
        self.whole.append(data)
        self.on_frame(kind, data[9:])

    def send(self, kind, correlation, message):
        body = message.encode(0)
        self.link.data_received(struct.pack(">ibi", 5 + len(body), kind, correlation) + body)

    def close(self):
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self.link.connection_lost, None)

    abort = close

    def is_reading(self):
        return not self.is_paused

    def pause_reading(self):
        self.is_paused = True

    def resume_reading(self):
        self.is_paused = False


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def store(clock):
    return MemoryStore(clock)


async def turns():
    for _ in range(30):
        await asyncio.sleep(0)


async def test_the_next_question_may_follow_an_answer_at_once(store, clock):
    wire = Wire(StoreServer(store, clock).link)
    wire.send(Kind.WATCH, 1, Watch(prefix="", from_rev=1))
    number = Number.decode(wire.frames[0][2], 0)
    seen = []

    def ask_on(kind, body):
        seen.append(Changes.decode(body, 0).revision)
        wire.send(Kind.NEXT, 2, number)

    wire.on_frame = ask_on
    wire.send(Kind.NEXT, 2, number)
    for value in range(5):
        await store.commit([], [Put("a", b"%d" % value)])
        await turns()
    assert seen == [1, 2, 3, 4, 5]
    assert not wire.is_closed


async def test_a_user_that_stands_still_loses_its_session_and_hears_of_it(store, clock):
    wire = Wire(StoreServer(store, clock).link)
    wire.send(Kind.OPEN_SESSION, 1, OpenSession(ttl_seconds=9.0))
    await turns()
    session = Number.decode(wire.frames[0][2], 0)
    await store.commit([], [Put("live", b"", session.number)])
    clock.advance(8.9)
    wire.send(Kind.RENEW_SESSION, 0, session)
    clock.advance(8.9)
    await turns()
    assert await store.get("live") is not None
    clock.advance(0.2)
    await turns()
    assert await store.get("live") is None
    assert wire.frames[-1][0] == Kind.SESSION_ENDED


async def test_a_user_that_is_not_read_because_it_asks_much_keeps_its_session(
    store, clock, monkeypatch
):
    """Of a slow disk: its renewals stand behind hundreds of commits."""
    server = StoreServer(store, clock)
    wire = Wire(server.link)
    wire.send(Kind.OPEN_SESSION, 1, OpenSession(ttl_seconds=9.0))
    await turns()
    session = Number.decode(wire.frames[0][2], 0)
    await store.commit([], [Put("live", b"", session.number)])
    commit, slow = store.commit, asyncio.Event()

    async def later(guards, ops):
        await slow.wait()
        return await commit(guards, ops)

    monkeypatch.setattr(store, "commit", later)
    for number in range(REQUESTS_MAX):
        wire.send(Kind.COMMIT, number + 2, Commit(guards=[], ops=[]))
    for _ in range(5):
        clock.advance(8.0)
        await turns()
    assert await store.get("live") is not None
    assert server.heard_at == clock.monotonic()
    assert wire.is_paused
    slow.set()
    await turns()
    assert not wire.is_paused
    clock.advance(8.9)
    await turns()
    assert await store.get("live") is not None, "it may be heard again"
    clock.advance(0.2)
    await turns()
    assert await store.get("live") is None


async def test_the_end_of_the_link_ends_sessions_at_once(store, clock):
    wire = Wire(StoreServer(store, clock).link)
    wire.send(Kind.OPEN_SESSION, 1, OpenSession(ttl_seconds=9.0))
    await turns()
    session = Number.decode(wire.frames[0][2], 0).number
    await store.commit([], [Put("live", b"", session)])
    wire.link.connection_lost(None)
    await turns()
    assert await store.get("live") is None


@pytest.mark.parametrize(
    "junk",
    [
        struct.pack(">ibi", FRAME_BYTES_MAX + 1, Kind.GET, 1),
        struct.pack(">ibi", -1, Kind.GET, 1),
        struct.pack(">ibi", 4, Kind.GET, 1),
        struct.pack(">ibi", 6, Kind.GET, 1) + b"\0",
        struct.pack(">ibi", 5, 50, 1),
        struct.pack(">ibi", 5, 64, 1),
        struct.pack(">ibiq", 13, Kind.NEXT, 1, 99),
    ],
)
async def test_what_no_end_sends_ends_the_link(store, clock, junk, caplog):
    wire = Wire(StoreServer(store, clock).link)
    wire.link.data_received(junk)
    assert wire.is_closed
    assert "sent what no end sends" in caplog.text


async def test_frames_may_come_byte_by_byte(store, clock):
    wire = Wire(StoreServer(store, clock).link)
    body = Watch(prefix="p", from_rev=1).encode(0)
    for byte in struct.pack(">ibi", 5 + len(body), Kind.WATCH, 7) + body:
        wire.link.data_received(bytes([byte]))
    assert [frame[:2] for frame in wire.frames] == [(Kind.DONE, 7)]


async def test_a_commit_whose_answer_never_comes_is_ambiguous(clock):
    store = RemoteStore(clock)
    wire = Wire(store.link)
    committing = asyncio.ensure_future(store.commit([Guard("a", 0)], [Put("a", b"")]))
    reading = asyncio.ensure_future(store.get("a"))
    await asyncio.sleep(0)
    assert len(wire.frames) == 2
    wire.link.connection_lost(None)
    with pytest.raises(Ambiguous):
        await committing
    with pytest.raises(Unavailable):
        await reading
    with pytest.raises(Unavailable):
        await store.commit([], [])


async def test_the_end_of_the_link_is_the_end_of_the_holders_session(clock):
    store = RemoteStore(clock)
    wire, states, lost = Wire(store.link), [], []
    store.on_lost = lambda: lost.append(1)
    opening = asyncio.ensure_future(store.session(9.0, states.append))
    await asyncio.sleep(0)
    wire.send(Kind.DONE, wire.frames[0][1], Number(number=5))
    session = await opening
    assert session.id == 5
    clock.advance(3.0)
    assert wire.frames[-1][0] == Kind.RENEW_SESSION
    wire.link.connection_lost(None)
    assert states == [SessionState.CONNECTED, SessionState.LOST]
    assert lost == [1]


async def test_a_session_that_ended_before_its_number_was_heard_is_no_session(store, clock):
    """Both came at once to a node that had stood still: it renewed for ever what there was not."""
    near, states = Wire(StoreServer(store, clock).link), []
    remote = RemoteStore(clock)
    far = Wire(remote.link)
    held = []
    far.on_frame = lambda kind, body: near.link.data_received(far.whole[-1])
    near.on_frame = lambda kind, body: held.append(near.whole[-1])
    asked_at = clock.monotonic()
    opening = asyncio.ensure_future(remote.session(9.0, states.append))
    await turns()
    clock.advance(9.0)
    await turns()
    assert [kind for kind, _, _ in near.frames] == [Kind.DONE, Kind.SESSION_ENDED]
    remote.link.data_received(b"".join(held))
    near.on_frame = lambda kind, body: remote.link.data_received(near.whole[-1])
    session = await opening
    assert session.certain_until == asked_at + 9.0
    clock.advance(3.0)
    await turns()
    assert states == [SessionState.CONNECTED, SessionState.LOST]


async def test_a_renewal_counts_when_it_is_answered_from_when_it_was_sent(store, clock):
    """A node that stood still renewed a session that was over, and took itself for a member."""
    near, states = Wire(StoreServer(store, clock).link), []
    remote = RemoteStore(clock)
    far = Wire(remote.link)
    far.on_frame = lambda kind, body: near.link.data_received(far.whole[-1])
    near.on_frame = lambda kind, body: remote.link.data_received(near.whole[-1])
    asked_at = clock.monotonic()
    opening = asyncio.ensure_future(remote.session(9.0, states.append))
    await turns()
    session = await opening
    clock.advance(3.0)
    assert session.certain_until == asked_at + 3.0 + 9.0
    held = []
    near.on_frame = lambda kind, body: held.append(near.whole[-1])
    clock.advance(3.0)
    clock.advance(3.0)
    assert session.certain_until == asked_at + 3.0 + 9.0
    for frame in held:
        remote.link.data_received(frame)
    assert session.certain_until == asked_at + 9.0 + 9.0
    far.on_frame = lambda kind, body: None  # It stands still, as far as the other end can see.
    clock.advance(9.0)
    await turns()
    clock.advance(3.0)
    assert session.certain_until < clock.monotonic()
    assert states == [SessionState.CONNECTED]


async def test_the_numbers_of_requests_begin_again_before_they_do_not_fit(clock):
    """A node that has asked for two years ended for it."""
    remote = RemoteStore(clock)
    wire = Wire(remote.link)
    remote._correlation = CORRELATION_MAX - 1
    asked = [asyncio.ensure_future(remote.get("a")) for _ in range(2)]
    await turns()
    assert [correlation for _, correlation, _ in wire.frames] == [CORRELATION_MAX, 1]
    for correlation in (CORRELATION_MAX, 1):
        wire.send(Kind.FOUND, correlation, Found(entry=None))
    assert await asyncio.gather(*asked) == [None, None]
