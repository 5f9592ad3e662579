"""The control endpoint: a broker's clock, faults and lives for tests in other languages, by HTTP.

Owns the paths and what stands in the JSON; ``Broker`` and ``Faults`` do the work. Off unless asked
for, on this machine only, without a password: whoever reaches it can stop the broker.

    GET    /                   address, time, the last requests
    POST   /clock/advance      {"by": "7d"}
    POST   /restart            {"kill": true, "power_loss": false}
    POST   /faults             {"fault": "delay", "api": "Fetch", "span": "2s", "times": 2}:
                               the arguments of ``Faults``' method of that name
    GET    /faults             all, and how often each struck
    DELETE /faults             heal all
    DELETE /faults/{number}    heal one
"""

import json
from collections.abc import Mapping
from typing import Any, Protocol

from ottla.env.blocking import new_lock
from ottla.env.web_server import WebRequest, WebServer
from ottla.errors import OttlaError
from ottla.testing.faults import Fault, Faults

KINDS = (
    "error",
    "delay",
    "throttle",
    "corrupt_batch",
    "drop",
    "disk_full",
    "fsync_error",
    "rolling_restart",
    "zombie_producer",
    "slow_disk",
    "leader_moves",
)
FAULTS_MAX = 1_000


class Clock(Protocol):
    """The broker's time."""

    def advance(self, span: str | float) -> None:
        """Let it jump."""

    def wall_ms(self) -> int:
        """Return it, in milliseconds since 1970."""


class Controlled(Protocol):
    """What is controlled: ``testing.Broker``."""

    @property
    def bootstrap(self) -> str:
        """What clients connect to."""

    @property
    def clock(self) -> Clock:
        """Its time."""

    @property
    def faults(self) -> Faults:
        """What is to go wrong."""

    def restart(self, *, kill: bool = False, power_loss: bool = False) -> None:
        """Stop and start it."""

    def last_requests(self) -> list[str]:
        """Return a line for each of the last requests."""


class Refused(ValueError):
    """A question that means nothing; ``status`` is of HTTP."""

    def __init__(self, why: str, status: int = 400) -> None:
        super().__init__(why)
        self.status = status


class Control:
    """Serves one broker, from ``start`` to ``stop``."""

    def __init__(self, broker: Controlled) -> None:
        self._broker = broker
        self._lock = new_lock()
        self._faults: dict[int, Fault] = {}
        self._next_number = 1
        self._server = WebServer(self._answer)

    def start(self) -> str:
        """Start; return the URL."""
        return f"http://127.0.0.1:{self._server.start()}"

    def stop(self) -> None:
        """Stop. Harmless when stopped."""
        self._server.stop()

    def _answer(self, asked: WebRequest) -> tuple[int, bytes]:
        try:
            with self._lock:
                status, said = 200, self._do(asked)
        except Refused as error:
            status, said = error.status, {"error": str(error)}
        except (OttlaError, ValueError, TypeError) as error:
            status, said = 400, {"error": str(error)}
        return status, json.dumps(said).encode() + b"\n"

    def _do(self, asked: WebRequest) -> object:
        match asked.method, asked.path:
            case "GET", ():
                return self._shown()
            case "POST", ("clock", "advance"):
                self._broker.clock.advance(_one(asked, "by"))
                return {"time_ms": self._broker.clock.wall_ms()}
            case "POST", ("restart",):
                given = _details(asked, "kill", "power_loss")
                if any(not isinstance(each, bool) for each in given.values()):
                    raise Refused("kill and power_loss are true or false")  # "no" is no false.
                self._broker.restart(**given)
                return self._shown()
            case "POST", ("faults",):
                return self._plan(_details(asked))
            case "GET", ("faults",):
                return [self._told(number) for number in self._faults]
            case "DELETE", ("faults",):
                return [self._heal(number) for number in list(self._faults)]
            case "DELETE", ("faults", number) if number.isdecimal():
                return self._heal(int(number))
        raise Refused(f"no {asked.method} of /{'/'.join(asked.path)}", 404)

    def _shown(self) -> object:
        return {
            "bootstrap": self._broker.bootstrap,
            "time_ms": self._broker.clock.wall_ms(),
            "requests": self._broker.last_requests(),
        }

    def _plan(self, details: dict[str, Any]) -> object:
        kind = details.pop("fault", None)
        if kind not in KINDS:
            raise Refused(f"fault: {kind!r} is none of {', '.join(KINDS)}")
        if len(self._faults) >= FAULTS_MAX:
            raise Refused(f"there are {FAULTS_MAX} faults already")
        if kind in ("error", "delay", "drop", "throttle"):
            details.setdefault("api", None)
        number, self._next_number = self._next_number, self._next_number + 1
        self._faults[number] = getattr(self._broker.faults, kind)(**details)
        return self._told(number)

    def _heal(self, number: int) -> object:
        fault = self._faults.get(number)
        if fault is None:
            raise Refused(f"there is no fault {number}", 404)
        fault.heal()
        said = self._told(number)
        del self._faults[number]
        return said

    def _told(self, number: int) -> object:
        fault = self._faults[number]
        return {"number": number, "what": fault.what, "struck": fault.struck}


def _details(asked: WebRequest, *names: str) -> dict[str, Any]:
    """Return the body's object, with ``names`` only, if there are any."""
    try:
        found = json.loads(asked.body or b"{}")
    except (ValueError, RecursionError):
        raise Refused("the body is no JSON") from None
    if not isinstance(found, Mapping):
        raise Refused("the body is no JSON object")
    unknown = [name for name in found if names and name not in names]
    if unknown:
        raise Refused(f"there is no {', '.join(unknown)}; known: {', '.join(names)}")
    return dict(found)


def _one(asked: WebRequest, name: str) -> Any:  # noqa: ANN401 - JSON
    details = _details(asked, name)
    if name not in details:
        raise Refused(f"{name} is missing")
    return details[name]
