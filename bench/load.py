"""A raw client that costs little: prebuilt frames, one thread, a fixed pipelining depth.

The same bytes go to every broker. What is measured: requests and bytes per second, latency from
the first byte of a request handed to the socket until its whole answer is read, and the broker's
CPU time by the kernel's account.
"""

import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.machine import OTHERS_SHARE_MAX
from tools.peer import Peer


@dataclass
class Measure:
    """One run of one scenario against one broker."""

    requests: int
    seconds: float
    bytes_moved: int
    latencies: list[float]
    """Seconds, sorted."""
    broker_cpu_seconds: float
    """User and system time."""
    broker_user_seconds: float
    client_cpu_seconds: float
    others_share: float = 0.0
    """What processes of others took of the machine's processors meanwhile, 0 to 1."""

    @property
    def is_disturbed(self) -> bool:
        """Whether others took so much that the run says little."""
        return self.others_share > OTHERS_SHARE_MAX

    @property
    def requests_per_second(self) -> float:
        """Answered requests per second."""
        return self.requests / self.seconds

    @property
    def megabytes_per_second(self) -> float:
        """10^6 bytes of records per second."""
        return self.bytes_moved / self.seconds / 1e6

    @property
    def broker_us_per_request(self) -> float:
        """Broker CPU (user and system) in microseconds per request."""
        return self.broker_cpu_seconds / self.requests * 1e6

    @property
    def broker_user_us_per_request(self) -> float:
        """The broker's own part of that, without the kernel's work for it."""
        return self.broker_user_seconds / self.requests * 1e6

    @property
    def client_us_per_request(self) -> float:
        """The same of this client, to show that it does not measure itself."""
        return self.client_cpu_seconds / self.requests * 1e6

    @property
    def broker_seconds_per_gigabyte(self) -> float:
        """Broker CPU seconds per 10^9 bytes of records."""
        return self.broker_cpu_seconds / max(self.bytes_moved, 1) * 1e9

    def latency_ms(self, share: float) -> float:
        """Return the latency that ``share`` of the requests stay within, in ms."""
        index = min(len(self.latencies) - 1, int(len(self.latencies) * share))
        return self.latencies[index] * 1000


@dataclass
class Connection:
    """One connection: what it sends next, what it waits for."""

    socket: socket.socket
    frames: Sequence[bytes]
    next_frame: int = 0
    unsent: memoryview = field(default_factory=lambda: memoryview(b""))
    begun: deque[float] = field(default_factory=deque)
    head: bytearray = field(default_factory=bytearray)
    missing: int = 0
    """Bytes of the answer under way that are still to come; 0 when its length is not known yet."""


class BadAnswer(RuntimeError):
    """The broker answered a benchmark's request with an error."""


def run(  # noqa: C901 - one loop, flat on purpose: it is what is measured
    peer: Peer,
    frames: Sequence[bytes],
    *,
    connections: int,
    depth: int,
    seconds: float,
    error_at: int,
    bytes_per_request: int = 0,
    requests_max: int = 1 << 60,
) -> Measure:
    """Send ``frames`` in turn for ``seconds``; each connection keeps ``depth`` requests in flight.

    ``error_at`` is the position of the int16 error code in the answer's body (behind the length);
    the first 64 bytes must hold it. ``bytes_per_request`` of 0 counts the answers' bytes instead.
    Raises BadAnswer.
    """
    selector = selectors.DefaultSelector()
    opened = [connect(peer, frames, start) for start in range(connections)]
    for connection in opened:
        selector.register(connection.socket, selectors.EVENT_READ, connection)
    scratch = bytearray(1 << 20)
    latencies: list[float] = []
    moved = 0
    before, own_before = peer.user_and_system_seconds(), time.process_time()
    begin = time.perf_counter()
    deadline = begin + seconds
    now = begin
    started = 0
    for connection in opened:
        for _ in range(depth):
            start_request(connection, now, selector)
            started += 1
    while any(connection.begun for connection in opened):
        for key, events in selector.select(30) or [(None, 0)]:
            if key is None:
                raise BadAnswer(f"{peer.name} is silent for 30 s")
            connection = key.data
            if events & selectors.EVENT_WRITE:
                push(connection, selector)
            if not events & selectors.EVENT_READ:
                continue
            answered, size = pull(connection, scratch, error_at, peer)
            now = time.perf_counter()
            moved += answered * bytes_per_request if bytes_per_request else size
            for _ in range(answered):
                latencies.append(now - connection.begun.popleft())
                if now < deadline and started < requests_max:
                    start_request(connection, now, selector)
                    started += 1
    elapsed = time.perf_counter() - begin
    after, own = peer.user_and_system_seconds(), time.process_time() - own_before
    user = after[0] - before[0]
    for connection in opened:
        connection.socket.close()
    selector.close()
    latencies.sort()
    cpu = user + after[1] - before[1]
    return Measure(len(latencies), elapsed, moved, latencies, cpu, user, own)


def connect(peer: Peer, frames: Sequence[bytes], start: int) -> Connection:
    """Open one connection that begins at frame ``start``."""
    opened = socket.create_connection((peer.host, peer.port), timeout=30)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 21)
    opened.setblocking(False)
    return Connection(opened, frames, start)


def start_request(connection: Connection, now: float, selector: selectors.BaseSelector) -> None:
    """Send the connection's next frame, or queue it behind an unfinished one."""
    frame = connection.frames[connection.next_frame % len(connection.frames)]
    connection.next_frame += 1
    connection.begun.append(now)
    if connection.unsent:
        connection.unsent = memoryview(bytes(connection.unsent) + frame)
        return
    connection.unsent = memoryview(frame)
    push(connection, selector)


def push(connection: Connection, selector: selectors.BaseSelector) -> None:
    """Send what is unsent, as far as the socket takes it."""
    try:
        while connection.unsent:
            sent = connection.socket.send(connection.unsent)
            connection.unsent = connection.unsent[sent:]
    except BlockingIOError:
        selector.modify(connection.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, connection)
        return
    selector.modify(connection.socket, selectors.EVENT_READ, connection)


def pull(connection: Connection, scratch: bytearray, error_at: int, peer: Peer) -> tuple[int, int]:
    """Read what is there; return how many answers ended, and the bytes read.

    Raises BadAnswer when one carries an error code.
    """
    try:
        size = connection.socket.recv_into(scratch)
    except BlockingIOError:
        return 0, 0
    if size == 0:
        raise BadAnswer(f"{peer.name} closed the connection")
    answered = position = 0
    head = connection.head
    while position < size:
        if connection.missing == 0:
            wanted = min(4 + error_at + 2 - len(head), size - position)
            head += scratch[position : position + wanted]
            position += wanted
            if len(head) < 4 + error_at + 2:
                break
            length, code = (
                struct.unpack_from(">i", head)[0],
                struct.unpack_from(">h", head, 4 + error_at)[0],
            )
            if code:
                raise BadAnswer(f"{peer.name} answered error {code}")
            connection.missing = length - error_at - 2
            head.clear()
        step = min(connection.missing, size - position)
        position += step
        connection.missing -= step
        if connection.missing == 0:
            answered += 1
    return answered, size
