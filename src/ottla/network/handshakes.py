"""The TLS handshakes of a listener: how many are at work, whose turn it is, how long each may take.

Owns the line of handshakes whose next step can be done. Steps run on an executor, a few at a time,
and the addresses take turns: an address with thousands of handshakes does not keep another out.
Knows no bytes. Source: attacks 45 and 47 of the security design; docs/hostile-clients.md.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple, Protocol

from ottla.env.alarm import STALL_SECONDS
from ottla.env.clock import Clock, Timer
from ottla.env.executor import Executor
from ottla.env.server_tls import Engine, OpenEngine, TlsBroken

STEPS_MAX = 8
"""How many steps are with the executor at a time; all others wait, by address."""
WIRE_READ_BYTES = 256 * 1024
"""How many bytes of the wire are received at a time. Decrypting them takes less than 1 ms."""


class Stepped(NamedTuple):
    """What one step of a handshake has come to."""

    engine: Engine
    is_complete: bool
    answer: bytes
    """For the wire."""
    why: str
    """Why the handshake has failed; "": it has not."""


class Handshaking(Protocol):
    """A connection in its handshake."""

    host: str
    """The client's address."""

    def work(self) -> Callable[[], Stepped]:
        """Return the next step, which runs on another thread; "stepped" hears of its result."""

    def stepped(self, result: Stepped) -> None:
        """Go on after the step."""

    def refuse(self, why: str) -> None:
        """Give up."""


def take_step(engine: Engine | None, open_engine: OpenEngine, data: bytes) -> Stepped:
    """Feed ``data`` and take one step; None: of a new engine. Takes up to some ms."""
    ours = open_engine() if engine is None else engine
    ours.feed(memoryview(data))
    try:
        is_complete = ours.shake()
    except TlsBroken as broken:
        return Stepped(ours, is_complete=False, answer=ours.take(), why=str(broken))
    return Stepped(ours, is_complete, ours.take(), "")


class Handshakes:
    """All handshakes of one node."""

    def __init__(
        self,
        executor: Executor,
        clock: Clock,
        *,
        seconds: float,
        note: Callable[[str, str], None],
    ) -> None:
        """``seconds``: for one handshake. ``note`` hears the host and why it was refused."""
        self._executor = executor
        self._clock = clock
        self._seconds = seconds
        self.note = note
        self.scratch = memoryview(bytearray(WIRE_READ_BYTES))
        """Use: every connection receives here; what must stay is copied at once."""
        self._due: OrderedDict[Handshaking, float] = OrderedDict()
        """When each must be complete, the oldest first."""
        self._lines: OrderedDict[str, OrderedDict[Handshaking, None]] = OrderedDict()
        """By host, those whose next step can be done. Invariant: no line is empty."""
        self._at_work = 0
        self._timer: Timer | None = None

    @property
    def count(self) -> int:
        """How many handshakes are not complete."""
        return len(self._due)

    def begin(self, handshake: Handshaking) -> None:
        """Give it its time."""
        self._due[handshake] = self._clock.monotonic() + self._seconds
        if self._timer is None:
            self._arm()

    def end(self, handshake: Handshaking) -> None:
        """Forget it: it is complete, or lost. Harmless when it is not known."""
        if self._due.pop(handshake, None) is None:
            return
        line = self._lines.get(handshake.host)
        if line is not None and handshake in line:
            del line[handshake]
            if not line:
                del self._lines[handshake.host]
        if not self._due and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def want_step(self, handshake: Handshaking) -> None:
        """Have its next step done when it is its turn."""
        self._lines.setdefault(handshake.host, OrderedDict())[handshake] = None
        self._go_on()

    def _go_on(self) -> None:
        while self._lines and self._at_work < STEPS_MAX:
            host, line = next(iter(self._lines.items()))
            handshake, _ = line.popitem(last=False)
            self._lines.move_to_end(host)  # The other addresses come first.
            if not line:
                del self._lines[host]
            self._at_work += 1
            self._executor.submit(handshake.work(), self._done(handshake))

    def _done(
        self, handshake: Handshaking
    ) -> Callable[[Stepped | None, BaseException | None], None]:
        def done(result: Stepped | None, error: BaseException | None) -> None:
            self._at_work -= 1
            if handshake in self._due:
                if result is None:
                    handshake.refuse(f"its handshake failed unexpectedly: {error!r}")
                else:
                    handshake.stepped(result)
            self._go_on()

        return done

    def _arm(self) -> None:
        first = next(iter(self._due.values()))
        seconds = max(first - self._clock.monotonic(), 0.0)
        self._timer = self._clock.call_later(seconds, self._judge)

    def _judge(self) -> None:
        """Refuse those that took too long.

        If this process stood still, what they sent may be unread: they get some time more.
        """
        now = self._clock.monotonic()
        if now - next(iter(self._due.values())) > STALL_SECONDS:
            least = now + STALL_SECONDS
            self._due = OrderedDict((each, max(due, least)) for each, due in self._due.items())
        for handshake, due in list(self._due.items()):
            if due > now:
                break
            handshake.refuse("it took too long for the handshake")
        self._timer = None
        if self._due:
            self._arm()
