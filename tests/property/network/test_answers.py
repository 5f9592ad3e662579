"""Whatever is sent, split anyhow and answered in any order: in request order, exactly once."""

import asyncio
import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.answer_memory import AnswerMemory
from ottla.env.clock import ManualClock
from ottla.env.memory_net import MemoryNet, MemoryNetwork
from ottla.env.rng import SeededRng
from ottla.network.frame import ReceiveBudget
from ottla.network.limits import Limits
from ottla.network.listener import Listener
from ottla.pending import Pending

HOW = st.sampled_from(["at once", "done already", "later", "never an answer", "later, no answer"])
REQUESTS = st.lists(
    st.tuples(st.sampled_from([0, 0, 0, 1, 3]), HOW, st.integers(0, 3000)), max_size=25
)


class Client(asyncio.Protocol):
    def __init__(self):
        self.received = bytearray()

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.received += data


class Broker:
    """A dispatch that follows the drawn plan and keeps what it has not answered yet."""

    def __init__(self, plan, *, overlaps_early):
        self.plan = plan
        self.seen = []
        self.open = []
        self.overlaps_early = overlaps_early

    def dispatch(self, frame):
        key, _, number = struct.unpack_from(">hhi", frame)
        assert self.plan[number][0] == key
        assert len(frame) == 8 + self.plan[number][2]
        self.seen.append(number)
        how = self.plan[number][1]
        if how == "never an answer":
            return None
        if how == "at once":
            return self.answer(number)
        pending = Pending(overlaps=key == 0 and (self.overlaps_early or number % 3 > 0))
        if how == "done already":
            pending.resolve(self.answer(number))
        else:
            self.open.append((number, pending))
        return pending

    def answer(self, number):
        body = bytes([number]) * (number * 37 % 500)
        return [struct.pack(">ii", 4 + len(body), number), body]

    def resolve(self, at):
        number, pending = self.open.pop(at % len(self.open))
        silent = self.plan[number][1] == "later, no answer"
        pending.resolve(None if silent else self.answer(number))

    def expected(self):
        return b"".join(
            b"".join(self.answer(number))
            for number, (_, how, _) in enumerate(self.plan)
            if how not in {"never an answer", "later, no answer"}
        )


@given(
    plan=REQUESTS,
    cuts=st.lists(st.integers(1, 2000), max_size=30),
    order=st.lists(st.integers(0, 100), min_size=1, max_size=30),
    turns=st.lists(st.integers(0, 4), min_size=1, max_size=10),
    in_flight_max=st.integers(1, 8),
    seed=st.none() | st.integers(0, 1000),
    overlaps_early=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_answers_leave_in_request_order_exactly_once(
    plan, cuts, order, turns, in_flight_max, seed, overlaps_early
):
    async def story():
        fragments = None if seed is None else SeededRng(seed)
        net = MemoryNet(MemoryNetwork(fragments=fragments))
        broker = Broker(plan, overlaps_early=overlaps_early)
        budget = ReceiveBudget(1 << 20)
        limits = Limits(in_flight_max=in_flight_max, write_buffer_bytes=2000)
        listener = Listener(
            net=net,
            clock=ManualClock(),
            limits=limits,
            budget=budget,
            answers=AnswerMemory(1 << 28),
            open_dispatch=lambda peer, entrance: broker.dispatch,
        )
        _, port = await listener.start(host="127.0.0.1", port=0)
        _, client = await net.connect(Client, host="127.0.0.1", port=port)
        stream = b"".join(
            struct.pack(">ihhi", 8 + size, key, 0, number) + bytes(size)
            for number, (key, _, size) in enumerate(plan)
        )
        expected = broker.expected()
        step, steps_max = 0, 20_000 + 2 * len(stream)  # One byte at a time takes its time.
        while stream or broker.open or len(broker.seen) < len(plan):
            cut = cuts[step % len(cuts)] if cuts else 1_000_000
            client.transport.write(stream[:cut])
            stream = stream[cut:]
            for _ in range(turns[step % len(turns)] + (not stream)):
                await asyncio.sleep(0)
            if broker.open and (not stream or step % 2):
                for _ in range(1 + order[step % len(order)] % 3):
                    if broker.open:
                        broker.resolve(order[step % len(order)])
            step += 1
            assert expected.startswith(bytes(client.received)), "in order, and nothing twice"
            assert len(broker.open) <= in_flight_max
            assert step < steps_max
        for _ in range(20_000):
            if len(client.received) >= len(expected):
                break
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert bytes(client.received) == expected
        assert broker.seen == list(range(len(plan)))
        client.transport.close()
        await listener.stop(grace_seconds=1)
        assert budget.used_bytes == 0

    asyncio.run(story())


@given(
    sizes=st.lists(st.integers(8, 5000), max_size=20),
    cuts=st.lists(st.integers(1, 3000), min_size=1, max_size=40),
)
@settings(max_examples=150, deadline=None)
def test_frames_come_out_as_they_went_in(sizes, cuts):
    from ottla.network.frame import FrameReader

    budget = ReceiveBudget(1 << 20)
    reader = FrameReader(budget, 5000)
    bodies = [bytes([index]) * size for index, size in enumerate(sizes)]
    stream = b"".join(struct.pack(">i", len(body)) + body for body in bodies)
    frames, step = [], 0
    while stream:
        writable = reader.writable()
        count = min(cuts[step % len(cuts)], len(writable), len(stream))
        writable[:count] = stream[:count]
        reader.received(count)
        stream, step = stream[count:], step + 1
        # Not every frame is taken at once: the bounds of a connection stop in between.
        while step % 3 and (frame := reader.next_frame()) is not None:
            frames.append(bytes(frame))
        reader.settle()
    while (frame := reader.next_frame()) is not None:
        frames.append(bytes(frame))
        reader.settle()
    assert frames == bodies
    reader.release()
    assert budget.used_bytes == 0
