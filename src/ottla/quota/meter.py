# cython: language_level=3, binding=False
# mypy: disable-error-code="valid-type, untyped-decorator, name-defined, no-any-return"
"""Whether a request is surely within the quotas of its client: all that most requests ask.

Owns the meter, and the short way of a Produce and a Fetch past it. In two forms, as
``ottla.records.kernels``: compiled, the short way is some hundred nanoseconds, because the meter's
numbers are C's and nothing is called; interpreted, it does the same. What does not surely fit, and
what else a request may have to be counted for, is for ``ottla.handlers.quotas``, which is given
here as functions. Knows no wire but the few bytes that it is told of. The arithmetic is
``ottla.quota.rate``'s.
"""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING

from ottla.quota.rate import Rate, Windows, bounded_ms

try:
    import cython
except ImportError:  # an installation without compiler runs this file without Cython, too
    from ottla.env import interpreted as cython

if not cython.compiled:  # else it stands in meter.pxd
    from operator import getitem as item

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Call = Client = Fetched = Passage = Any
    """What the rooms above know them as."""
    LookUp = Callable[[Client, memoryview, int], "Held | None"]
    Counted = Callable[[int, memoryview, Client, int, Any], "Passage | None"]

COMPILED: bool = cython.compiled

ROOM_MAX = 2**30 - 1
"""The most that is charged before the sums are made again: larger numbers compare more slowly."""


@cython.cclass
class Meter:
    """A rate with a bound per second, which says how long to wait.

    ``charge`` keeps how much may surely still be recorded in the current sample without a wait, so
    that the usual call neither sums nor divides. The result is always the exact one.
    """

    __slots__ = (
        *("_amount", "_bound", "_cap_ms", "_full", "_rate"),
        *("_windows", "last_ms", "room", "until_ms"),
    )

    _amount: cython.double
    """Use: of what was charged by ``takes``, not yet in the sample."""
    _bound: cython.double
    _cap_ms: int | None
    _full: cython.double
    """Use: what ``room`` would be if nothing but ``takes`` had charged. What is missing in it was
    charged without a call, in whole bytes, and is not yet in the sample."""
    _rate: Rate
    _windows: Windows
    last_ms: cython.double
    """Use: of the last charge that is not yet in the sample; 0: there is none."""
    room: cython.double
    """Use: how much may surely still be charged. Interpreted it is whole, so that bytes are counted
    in integers: mixed with fractions these cost three times as much."""
    until_ms: cython.double
    """Use: until when ``room`` holds. With a fraction, as the times that it is compared to."""

    def __init__(self, bound: float, windows: Windows, cap_ms: int | None = None) -> None:
        """Build it; ``cap_ms``: the longest wait; None: no limit but that of an answer's field."""
        self._rate = Rate(windows)
        self._windows = windows
        self._bound = bound
        self._cap_ms = cap_ms
        self._amount = self._full = self.room = 0
        self.last_ms = self.until_ms = 0.0

    @property
    def bound(self) -> float:
        """How much per second."""
        return self._bound

    @bound.setter
    def bound(self, bound: float) -> None:
        if bound != self._bound:
            self._settle()
            self._bound = bound

    def takes(self, amount: float, now_ms: float) -> bool:
        """Record ``amount`` (not negative) if it surely needs no wait; else do nothing.

        ``now_ms`` may have fractions. Below, bytes are counted so without a call.
        """
        if now_ms < self.until_ms and amount <= self.room:
            self.room -= amount
            self._full -= amount  # As ``room``, so that fractions are rounded alike.
            self._amount += amount
            self.last_ms = now_ms
            return True
        return False

    def charge(self, amount: float, now_ms: int) -> int:
        """Record ``amount`` (not negative); return for how many ms to wait, 0: not at all."""
        if self.takes(amount, now_ms):
            return 0
        self._settle()
        self._rate.record(amount, now_ms)
        return self._wait(now_ms)

    def note(self, amount: float, now_ms: int) -> None:
        """Record ``amount``, and ask for no wait; a negative amount takes back."""
        if amount >= 0 and self.takes(amount, now_ms):
            return
        self._settle()
        self._rate.record(amount, now_ms)

    def wait_ms(self, now_ms: int) -> int:
        """Return for how many ms to wait now."""
        self._settle()
        return self._wait(now_ms)

    def _wait(self, now_ms: int) -> int:
        total, elapsed_ms = self._rate.measure(now_ms)
        rate = total / (elapsed_ms / 1000)
        if rate > self._bound:
            return bounded_ms((rate - self._bound) / self._bound * elapsed_ms, self._cap_ms)
        self.room = self._full = floor(
            min(ROOM_MAX, self._bound * self._windows.burst_seconds - total)
        )
        self.until_ms = float(self._rate.current(now_ms).start_ms + self._windows.window_ms)
        return 0

    def _settle(self) -> None:
        """Put into the sample what was charged without it."""
        if self.until_ms:
            self.until_ms = 0.0
            if self.last_ms:  # Also if nothing was charged then: the sample lives on.
                amount = self._amount + (self._full - self.room)
                self._rate.record(amount, int(self.last_ms))
                self._amount, self.last_ms = 0, 0.0

    def is_idle(self, now_ms: int) -> bool:
        """Whether a new meter would say the same from now on."""
        self._settle()
        return self._rate.is_idle(now_ms)


_LENGTH_BITS = cython.declare(cython.int, 7)
"""Of a length, in each byte that it takes."""
_API_VERSION = cython.declare(cython.int, 0)
_PRINCIPAL = cython.declare(cython.int, 4)
_TOPIC_PARTITION = cython.declare(cython.int, 0)
_REGION = cython.declare(cython.int, 5)
_ABORTED = cython.declare(cython.int, 9)
_TOPIC = cython.declare(cython.int, 0)
_LENGTH_BYTES = cython.declare(cython.int, 2)
"""The places in a ``Call``, a ``Client``, a ``FetchedPartition``, a ``TopicPartition`` and a
``Region``: by name these named tuples cost ten times as much."""


@cython.cclass
class FetchMeter:
    """Counts any Fetch of a client by a meter of bytes. It keeps nothing of a request."""

    __slots__ = ("_ids_since", "_meter", "_now", "_usual_bytes")

    _ids_since: cython.int
    _meter: Meter
    _now: Callable[[], float]
    _usual_bytes: tuple[int, ...]

    def __init__(
        self,
        meter: Meter,
        now: Callable[[], float],
        *,
        usual_bytes: tuple[int, ...],
        ids_since: int,
    ) -> None:
        """Build it.

        ``usual_bytes``: by version, the length of an answer with one partition, without its records
        and the topic's name, and with one byte for the length of each; 0: not known. ``ids_since``:
        versions from this one on do not name the topic.
        """
        assert meter is not None, "that is what it counts by"
        self._meter = meter
        self._now = now
        self._usual_bytes = usual_bytes
        self._ids_since = ids_since

    def fetch_wait_ms(self, call: Call, fetched: Sequence[Fetched]) -> int:
        """Charge the bytes of an answer; return for how long it has to wait, in ms, or 0."""
        if len(fetched) == 1 and self._takes(call, fetched[0]):
            return 0
        return self.charge(call, fetched)

    def news_wait_ms(self, call: Call, news: Sequence[tuple[object, Fetched]]) -> int:
        """Do as ``fetch_wait_ms``; what was fetched stands second in each pair."""
        if len(news) == 1 and self._takes(call, item(news[0], 1)):
            return 0
        return self.charge(call, [fetched for _, fetched in news])

    @cython.cfunc
    def _takes(self, call: Call, only: Fetched) -> cython.bint:
        """Charge an answer with one partition if it surely needs no wait; else do nothing."""
        region = item(only, _REGION)
        version: cython.Py_ssize_t = item(call, _API_VERSION)
        size_bytes: cython.Py_ssize_t = self._usual_bytes[version]
        if region is None or not size_bytes or item(only, _ABORTED):
            return False
        records_bytes: cython.Py_ssize_t = item(region, _LENGTH_BYTES)
        size_bytes += records_bytes
        more: cython.Py_ssize_t = (records_bytes + 1) >> _LENGTH_BITS
        while more:  # For each byte more that the length itself takes.
            size_bytes += 1
            more >>= _LENGTH_BITS
        if version < self._ids_since:  # A topic that there is has a name of ASCII.
            name_bytes: cython.Py_ssize_t = len(item(item(only, _TOPIC_PARTITION), _TOPIC))
            size_bytes += name_bytes + ((name_bytes + 1) >> _LENGTH_BITS > 0)
        now_ms: cython.double = self._now() * 1000.0
        meter = self._meter
        if now_ms < meter.until_ms and size_bytes <= meter.room:  # As ``Meter.takes``.
            meter.room -= size_bytes
            meter.last_ms = now_ms
            return True
        return False

    def charge(self, call: Call, fetched: Sequence[Fetched]) -> int:
        """Charge all other answers, and what does not surely fit; return as ``fetch_wait_ms``."""
        raise NotImplementedError


@cython.cclass
class Held:
    """What holds for one client."""

    __slots__ = ("fetch", "produce", "rest")

    fetch: Passage | None
    """What counts its Fetches; None: it is in ``rest``, or nothing is to be counted."""
    produce: Meter | None
    rest: Any

    def __init__(self, fetch: Passage | None, produce: Meter | None, rest: object) -> None:
        self.fetch = fetch
        self.produce = produce
        self.rest = rest


_PRODUCE = cython.declare(cython.int, 0)
_FETCH = cython.declare(cython.int, 1)
_VERSION_AT = cython.declare(cython.int, 3)
_CLIENT_ID_AT = cython.declare(cython.int, 10)
"""Where a request's version (its low byte) and the bytes of its client id stand."""
_UNKNOWN = object()


def client_id_of(frame: memoryview, client_id_bytes: int) -> bytes:
    """Return a request's client id."""
    return frame[_CLIENT_ID_AT : _CLIENT_ID_AT + max(client_id_bytes, 0)].tobytes()


@cython.cclass
class Entry:
    """Lets requests in, without more ado if they are surely within the quotas of their client."""

    __slots__ = ("_asks_client_id", "_counted", "_flexible_since", "_found", "_look_up", "_now")

    _counted: Counted
    _flexible_since: cython.int
    _found: dict[Any, Held | None]
    _look_up: LookUp
    _now: Callable[[], float]
    _asks_client_id: cython.bint

    def __init__(
        self,
        found: dict[Any, Held | None],
        now: Callable[[], float],
        look_up: LookUp,
        counted: Counted,
        *,
        flexible_since: int,
    ) -> None:
        """Build it.

        ``found``: what holds, by principal, or by principal and client id if quotas ask for that;
        what is missing is asked of ``look_up``. ``counted`` lets in whatever else is to be counted.
        ``flexible_since``: the version of Produce whose header has one byte more.
        """
        self._found = found
        self._now = now
        self._look_up = look_up
        self._counted = counted
        self._flexible_since = flexible_since
        self._asks_client_id = False

    def ask_client_id(self, *, asked: bool) -> None:
        """Note whether some quota asks for client ids."""
        self._asks_client_id = asked

    def admit(
        self, key: int, frame: memoryview, client: Client, client_id_bytes: int
    ) -> Passage | None:
        """Let a request in; see ``ottla.handlers.gate.Admit``."""
        principal = item(client, _PRINCIPAL)
        if self._asks_client_id:
            asked = (principal, client_id_of(frame, client_id_bytes))
            found: Any = self._found.get(asked, _UNKNOWN)
        else:
            found = self._found.get(principal, _UNKNOWN)
        if found is _UNKNOWN:
            found = self._look_up(client, frame, client_id_bytes)
        if found is None:
            return None
        held: Held = found
        api: cython.int = key
        if api == _FETCH:
            if held.fetch is not None:
                return held.fetch
        elif api == _PRODUCE and held.produce is not None:
            meter: Meter = held.produce
            body_bytes: cython.Py_ssize_t = len(frame) - _CLIENT_ID_AT
            if client_id_bytes > 0:
                body_bytes -= client_id_bytes
            if frame[_VERSION_AT] >= self._flexible_since:
                body_bytes -= 1
            now_ms: cython.double = self._now() * 1000.0
            if now_ms < meter.until_ms and 0 <= body_bytes <= meter.room:  # As ``Meter.takes``.
                meter.room -= body_bytes
                meter.last_ms = now_ms
                return None
        return self._counted(key, frame, client, client_id_bytes, held.rest)
