"""The net port on the simulated loop: latency, one-way cuts, resets in mid-frame, dead hosts.

A write travels as one piece and arrives after the link's latency, in order; pieces may be cut into
smaller ones. A link that is cut in one direction holds what goes that way until it is mended, as
TCP would send it again. When a life ends the kernel resets its connections, and the peers learn of
it by the same links.
"""

import asyncio
import errno
import zlib
from collections import deque

WINDOW_BYTES = 64 * 1024
"""What a connection holds on its way and unread before the writer's own buffer grows."""
SYN_SECONDS = 1.0
"""A kernel that hears nothing asks again after so long."""
HIGH_WATER_BYTES = 64 * 1024
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1", "", "0.0.0.0", "::"})


def reset_error():
    return ConnectionResetError(errno.ECONNRESET, "connection reset by peer")


class Link:
    """The way from one host to another."""

    def __init__(self):
        self.is_cut = False
        self.held = []
        """Calls of arrivals that wait for the end of the cut."""


class SimulatedNetwork:
    """What all hosts share."""

    def __init__(self, loop, rng, trace):
        self.loop = loop
        self.rng = rng
        self.trace = trace
        self.latency_seconds = 0.0005
        """The mean of one way."""
        self.fragment_chance = 0.05
        self.listeners = {}
        self.ends = {}
        """Open ends of connections, by number."""
        self._links = {}
        self._next_port = 20_000
        self._next_number = 0

    def link(self, source, target):
        pair = (source, target)
        if pair not in self._links:
            self._links[pair] = Link()
        return self._links[pair]

    def cut(self, source, target):
        """Let nothing pass from one host to the other."""
        self.link(source, target).is_cut = True

    def mend(self):
        """End all cuts."""
        for link in self._links.values():
            if link.is_cut:
                link.is_cut = False
                held, link.held = link.held, []
                for life, arrive, arguments in held:
                    self.loop.call_for(life, self.delay(), arrive, *arguments)

    def delay(self):
        return self.rng.expovariate(1 / self.latency_seconds)

    def reset(self, chance, *, tells_node=True):
        """Break some connections, wherever in a frame they are.

        ``tells_node``: False: only the client's end is gone; the other learns of it when it writes.
        """
        for end in list(self.ends.values()):
            if end.is_client and self.rng.random() < chance:
                end.break_off(reset_error())
                if tells_node:
                    end.peer.break_off(reset_error())

    def ended(self, life):
        """A process has ended: its doors are gone and its connections are reset."""
        for at in [at for at, door in self.listeners.items() if door.life is life]:
            del self.listeners[at]
        for end in list(self.ends.values()):
            if end.life is life:
                end.vanish()

    def port(self):
        self._next_port += 1
        return self._next_port

    def number(self):
        self._next_number += 1
        return self._next_number


class SimulatedNet:
    """The net port of one life on one host."""

    def __init__(self, network, life, host, *, descriptors=None):
        self._network = network
        self._life = life
        self._host = host
        self._descriptors = descriptors

    async def listen(self, factory, *, host, port, backlog, paused=False):
        network = self._network
        at = (self._host, port or network.port())
        if at in network.listeners:
            raise OSError(errno.EADDRINUSE, f"address in use: {at}")
        door = Door(network, self._life, factory, at, backlog, self._descriptors, not paused)
        network.listeners[at] = door
        return door

    def file_sender(self, transport):
        return None

    async def connect(self, factory, *, host, port, tls=None):
        network, loop = self._network, self._network.loop
        there = (self._host if host in LOOPBACK else host, port)
        await asyncio.sleep(network.delay() * 2)
        links = network.link(self._host, there[0]), network.link(there[0], self._host)
        while links[0].is_cut or links[1].is_cut:  # noqa: ASYNC110 - a kernel asks again, too
            await asyncio.sleep(SYN_SECONDS)
        door = network.listeners.get(there)
        if door is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens on {there}")
        here = (self._host, network.port())
        client = End(network, self._life, here, there, is_client=True)
        server = End(network, door.life, there, here, is_client=False)
        client.peer, server.peer = server, client
        client.start(factory())
        loop.call_for(door.life, network.delay(), door.enter, server)
        return client, client.get_protocol()


class Door:
    """A listening address."""

    def __init__(self, network, life, factory, at, backlog, descriptors, accepting):
        self._network = network
        self.life = life
        self._factory = factory
        self.address = at
        self._backlog = backlog
        self._descriptors = descriptors
        self._accepting = accepting
        self._waiting = deque()

    def pause_accepting(self):
        self._accepting = False

    def resume_accepting(self):
        self._accepting = True
        self._network.loop.call_soon(self._accept)

    async def close(self):
        self._accepting = False
        self._network.listeners.pop(self.address, None)
        while self._waiting:
            self._waiting.popleft().abort()
        await asyncio.sleep(0)

    def enter(self, end):
        if (
            self._network.listeners.get(self.address) is not self
            or len(self._waiting) > self._backlog
        ):
            end.abort()
            return
        self._waiting.append(end)
        self._accept()

    def _accept(self):
        descriptors = self._descriptors
        while self._accepting and self._waiting:
            if descriptors is not None and not descriptors.has_room():
                # As real_net does: it waits in the backlog, and is tried again soon.
                self._network.loop.call_later(0.1, self._accept)
                return
            end = self._waiting.popleft()
            if not end.is_closing():
                end.descriptors = descriptors
                end.start(self._factory())


class End(asyncio.Transport):
    """One end of a connection: asyncio's transport."""

    def __init__(self, network, life, local, remote, *, is_client):
        super().__init__(extra={"sockname": local, "peername": remote, "socket": None})
        self._network = network
        self._loop = network.loop
        self.life = life
        self.is_client = is_client
        self.peer = None
        self.descriptors = None
        self._link = network.link(local[0], remote[0])
        self._number = network.number()
        self._protocol = None
        self._arrived = deque()
        """Pieces that the protocol has not taken; None: the end of the stream."""
        self._unread_bytes = 0
        """Of what the peer wrote: on its way, or arrived and not taken."""
        self._last_arrival = 0.0
        self._is_reading = True
        self._is_closing = False
        self._is_over = False
        self._end_sent = False
        self._end_seen = False
        self._is_writing_paused = False
        self._high_bytes = HIGH_WATER_BYTES
        self._low_bytes = HIGH_WATER_BYTES // 4
        network.ends[self._number] = self

    def start(self, protocol):
        self._protocol = protocol
        if self.descriptors is not None:
            self.descriptors.count += 1
        protocol.connection_made(self)
        self._feed()

    # -- what a protocol may call --------------------------------------------------------------

    def write(self, data):
        if self._is_closing or self._is_over or not data:
            return
        data = bytes(data)
        rng = self._network.rng
        self.peer._unread_bytes += len(data)
        if len(data) > 1 and rng.random() < self._network.fragment_chance:
            at = rng.randrange(1, len(data))
            self._travel(data[:at])
            data = data[at:]
        self._travel(data)
        if not self._is_writing_paused and self.get_write_buffer_size() > self._high_bytes:
            self._is_writing_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data):
        self.write(b"".join(list_of_data))

    def can_write_eof(self):
        return True

    def write_eof(self):
        if not self._end_sent and not self._is_over:
            self._end_sent = True
            self._travel(None)

    def close(self):
        if self._is_closing:
            return
        self._is_closing = True
        self.write_eof()
        self._loop.call_soon(self._lose, None)

    def abort(self):
        if self._is_over:
            return
        self.break_off(None)
        self._send(self.peer.life, self.peer.break_off, (reset_error(),))

    def is_closing(self):
        return self._is_closing

    def get_write_buffer_size(self):
        return max(0, self.peer._unread_bytes - WINDOW_BYTES)

    def get_write_buffer_limits(self):
        return self._low_bytes, self._high_bytes

    def set_write_buffer_limits(self, high=None, low=None):
        if high is None:
            high = HIGH_WATER_BYTES if low is None else 4 * low
        self._high_bytes, self._low_bytes = high, high // 4 if low is None else low

    def pause_reading(self):
        self._is_reading = False

    def resume_reading(self):
        if not self._is_reading:
            self._is_reading = True
            self._loop.call_soon(self._feed)

    def is_reading(self):
        return self._is_reading and not self._is_closing

    def set_protocol(self, protocol):
        self._protocol = protocol

    def get_protocol(self):
        return self._protocol

    # -- the wire ------------------------------------------------------------------------------

    def _travel(self, piece):
        self._last_arrival = max(self._last_arrival, self._loop.now + self._network.delay())
        self._send(self.peer.life, self.peer._arrive, (piece,), self._last_arrival - self._loop.now)

    def _send(self, life, arrive, arguments, delay=None):
        if self._link.is_cut:
            self._link.held.append((life, arrive, arguments))
        else:
            delay = self._network.delay() if delay is None else delay
            self._loop.call_for(life, delay, self._pass, life, arrive, arguments)

    def _pass(self, life, arrive, arguments):
        if self._link.is_cut:
            self._link.held.append((life, arrive, arguments))
        else:
            arrive(*arguments)

    def _arrive(self, piece):
        if self._is_over or self._is_closing:
            if piece is not None:
                self._send(self.peer.life, self.peer.break_off, (reset_error(),))
            return
        self._arrived.append(piece)
        if self._protocol is not None:
            self._feed()

    def _feed(self):
        while self._arrived and self._is_reading and not self._is_closing and not self._is_over:
            piece = self._arrived.popleft()
            if piece is None:
                self._end_seen = True
                if not self._protocol.eof_received():
                    self.close()
                return
            self._network.trace.note("receive", self._number, len(piece), hash_of(piece))
            self._take(piece)

    def _take(self, piece):
        try:
            if isinstance(self._protocol, asyncio.BufferedProtocol):
                buffer = memoryview(self._protocol.get_buffer(len(piece))).cast("B")
                taken = min(len(buffer), len(piece))
                buffer[:taken] = piece[:taken]
                if taken < len(piece):
                    self._arrived.appendleft(piece[taken:])
                self._protocol.buffer_updated(taken)
            else:
                taken = len(piece)
                self._protocol.data_received(piece)
        except Exception as error:  # noqa: BLE001 - as asyncio's transports do
            self._loop.call_exception_handler(
                {"message": "a protocol failed while it was given bytes", "exception": error}
            )
            self.abort()
            return
        self._unread_bytes -= taken
        peer = self.peer
        if peer._is_writing_paused and peer.get_write_buffer_size() <= peer._low_bytes:
            self._loop.call_for(peer.life, self._network.delay(), peer._go_on)

    def _go_on(self):
        if self._is_writing_paused and not self._is_over:
            self._is_writing_paused = False
            self._protocol.resume_writing()

    def break_off(self, error):
        """End now, whatever is on its way."""
        if not self._is_over:
            self._is_closing = True
            self._arrived.clear()
            if self.life.is_dead:
                self._forget()
            else:
                self._loop.call_for(self.life, 0.0, self._lose, error)

    def vanish(self):
        """The process has ended: the kernel tells the peer."""
        if not self._is_over:
            self._forget()
            self._send(self.peer.life, self.peer.break_off, (reset_error(),))

    def _lose(self, error):
        if self._is_over:
            return
        self._forget()
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    def _forget(self):
        self._is_over = self._is_closing = True
        self._network.ends.pop(self._number, None)
        if self.descriptors is not None and self._protocol is not None:
            self.descriptors.count -= 1


def hash_of(data):
    """Return a number for bytes that is the same in every process."""
    return zlib.crc32(data)
