"""``Broker``: a real broker for tests, in a thread of this process or in a process of its own.

    with Broker() as broker:
        run_app(bootstrap=broker.bootstrap)
        assert broker.records("orders")[0].value == b"..."

Owns start and stop, and the face of the clock. Blocks; ``async with`` does so in a thread.
"""

import asyncio
import atexit
import warnings
from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Any, Self

from ottla.config.hosts import CLUSTER
from ottla.errors import OttlaError
from ottla.testing.cluster import Cluster, seconds_of
from ottla.testing.faults import Fault, Faults, UnmatchedFault
from ottla.testing.hosts import BrokerFailed, Host, InProcess, InThread

if TYPE_CHECKING:
    from ottla.testing.control import Control


class TestClock:
    """The broker's clock. Clients keep theirs: their connections do not notice a jump."""

    __test__ = False  # Not for pytest to collect.

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    def advance(self, span: str | float) -> None:
        """Let the broker's time jump by ``"7d"``, ``"1h30m"`` or seconds, as after a sleep.

        Retention, sessions of groups, transactions and expiries that become due happen before this
        returns. Raises ValueError for a negative span, and beyond the year 9999.
        """
        seconds = seconds_of(span)
        if not 0 <= seconds < inf:
            raise ValueError(f"a clock cannot go back, nor to the end of time: {span}")
        self._broker.ask("jump", seconds=seconds)

    def wall_ms(self) -> int:
        """Return the broker's time, in milliseconds since 1970."""
        return int(self._broker.ask("wall_ms"))


class Broker(Cluster):
    """One broker. A context manager, sync or async; or ``start`` and ``stop`` it."""

    is_ottla = True

    def __init__(
        self,
        *,
        process: bool = False,
        data: str | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        config: Mapping[str, str] | None = None,
        control: bool = False,
    ) -> None:
        """Build a broker that is not started yet.

        ``process``: in a process of its own, not in a thread. ``data``: the directory; None: in
        memory. ``port`` 0: a free one. ``config``: broker options by Kafka's names.
        ``control``: serve clock and faults by HTTP, at ``control_url`` (docs/testing.md).
        ``config`` has neither ``listeners`` nor ``ottla.cluster``: ValueError.
        """
        super().__init__()
        if config and "listeners" in config:
            why = "listeners is made of host and port: Broker(host=..., port=...)"
            raise ValueError(why)
        if config and CLUSTER.key in config:
            why = f"{CLUSTER.key}: a broker for tests is no host of a cluster: ottla serve is"
            raise ValueError(why)
        self._texts = {**(config or {}), "listeners": f"PLAINTEXT://{host}:{port}"}
        self._data = data
        self._in_process = process
        self._host: Host | None = None
        self._has_control = control
        self._control: Control | None = None
        self.control_url = ""
        """Where the control endpoint is, with ``control``, while the broker runs."""
        self.clock = TestClock(self)
        """Time, as the broker has it."""
        self.faults = Faults(self.ask)
        """What is to go wrong."""

    @property
    def host(self) -> Host:
        """Where it runs. Raises BrokerFailed unless it does."""
        if self._host is None:
            raise BrokerFailed("the broker is not started")
        return self._host

    @property
    def is_running(self) -> bool:
        """Whether it is started."""
        return self._host is not None

    def start(self) -> Self:
        """Start; returns when clients are served. Harmless when started.

        Raises OSError, such as for a port in use; BrokerFailed; OttlaErrors.
        """
        if self._host is None:
            made = InProcess if self._in_process else InThread
            host = made(self._texts, self._data)
            try:
                name, port = host.start()
            except BaseException:
                host.stop()
                raise
            self._host = host
            self._bootstrap = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
            atexit.register(self.stop)
            if self._has_control:
                from ottla.testing.control import Control

                self._control = Control(self)
                self.control_url = self._control.start()
        return self

    def stop(self) -> None:
        """Stop, within some seconds. Harmless when stopped."""
        if self._host is None:
            return
        control, self._control = self._control, None
        if control is not None:
            control.stop()
        try:
            unmatched = self.faults.clear()
        except OttlaError:  # Its process has ended, or it did not start again; nobody knows.
            unmatched = []
            self.faults.forget()
        host, self._host = self._host, None
        atexit.unregister(self.stop)
        self.close()
        host.stop()
        warn_of(unmatched)

    def restart(self, *, kill: bool = False, power_loss: bool = False) -> None:
        """Stop and start it on the same data, at the same address.

        ``kill``: stop it as ``kill -9`` would. ``power_loss`` (in a thread, in memory): as the end
        of its power would, so that what was not synced may be gone.
        """
        self.close()
        self.ask("restart", kill=kill or power_loss, power_loss=power_loss)

    def ask(self, do: str, **details: object) -> Any:  # noqa: ANN401 - as JSON
        """Have the broker do what ``testing.server`` knows by a word. Raises BrokerFailed."""
        return self.host.ask(do, **details)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    def last_requests(self) -> list[str]:
        """Return a line for each of the last 50 requests, oldest first."""
        return list(self.ask("requests"))

    def log(self) -> str:
        """Return the log of a broker in a process; one in a thread logs to ``logging``."""
        return self.host.log()


def warn_of(unmatched: list[Fault]) -> None:
    """Warn of faults that nothing met."""
    for fault in unmatched:
        warnings.warn(f"nothing met {fault.what}", UnmatchedFault, stacklevel=3)
