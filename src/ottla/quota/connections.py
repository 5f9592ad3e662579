"""How fast clients may connect: ``connection_creation_rate``, ``max.connection.creation.rate``.

Owns the rate of each address: who connects too fast is held for a while and then closed, and that
connection does not count. And the rates of the listeners and of all of them: above those the next
connection waits to be accepted. Source: KIP-612.
"""

from collections.abc import Mapping

from ottla.ids import QUOTA_DEFAULT as DEFAULT
from ottla.quota.clients import METERS_MAX, Kind
from ottla.quota.meter import Meter
from ottla.quota.rate import Windows


class ConnectionRates:
    """The quotas of addresses, and what is measured by them."""

    def __init__(self, windows: Windows, meters_max: int = METERS_MAX) -> None:
        self._bounds: dict[str, float] = {}
        self._meters = Kind(lambda bound, _: Meter(bound, windows, windows.window_ms), meters_max)
        self._windows = windows

    def __len__(self) -> int:
        """Return how many addresses have a quota, with the default for one."""
        return len(self._bounds)

    def change(self, address: str, bound: float | None) -> None:
        """Set how many connections per second an address may make; None: any number."""
        if bound is None:
            self._bounds.pop(address, None)
        else:
            self._bounds[address] = bound

    def arrive(self, address: str, now_ms: int) -> int:
        """Count a new connection; return for how many ms to hold it and then close it, 0: serve it.

        ``address``: as the transport tells it.
        """
        address = address.removeprefix("::ffff:")
        bound = self._bounds.get(address, self._bounds.get(DEFAULT))
        if bound is None:
            return 0
        self._meters.make_room(now_ms, self._windows.all_ms)
        meter = self._meters.get((None, address), bound, now_ms)
        wait_ms = meter.charge(1, now_ms)
        if wait_ms:
            meter.note(-1, now_ms)
        return wait_ms


class AcceptRates:
    """How fast each listener accepts connections, and all of them together.

    As in Kafka a connection waits for as long as the rate needs to come down to its bound, but a
    window at most: a bound far below what was counted does not shut the door. Kafka accepts one at
    a time; here several are accepted at once, and each waits for those before it.
    """

    def __init__(self, windows: Windows, rates: Mapping[str, float], spared: str | None) -> None:
        """``rates``: by the listener's name, "": of all.

        ``spared``: the listener that those of all do not hold up; None: there is none.
        """
        self._meters = {name: Meter(rate, windows) for name, rate in rates.items()}
        self._spared = spared
        self._window_ms = windows.window_ms
        self._goes_on_ms: dict[str, int] = {}
        """Use: by listener, until when the last one that had to wait does."""

    def change(self, windows: Windows, rates: Mapping[str, float]) -> None:
        """Set other rates; what was counted stays, and nobody waits any more."""
        self._goes_on_ms.clear()
        self._meters = {
            name: self._meters.get(name) or Meter(rate, windows) for name, rate in rates.items()
        }
        for name, rate in rates.items():
            self._meters[name].bound = rate

    def accept(self, listener: str, now_ms: int) -> int:
        """Count a connection; return for how many ms it and all behind it have to wait."""
        names = (listener,) if listener == self._spared else (listener, "")
        meters = (self._meters.get(name) for name in names)
        wait_ms = max((one.charge(1, now_ms) for one in meters if one is not None), default=0)
        if wait_ms:
            before_ms = max(self._goes_on_ms.get(listener, now_ms) - now_ms, 0)
            wait_ms = min(wait_ms, before_ms + self._window_ms)
            self._goes_on_ms[listener] = now_ms + wait_ms
        return wait_ms
