"""What a client may be told: names, times and limits. The defaults suit a person waiting."""

from dataclasses import dataclass
from typing import NamedTuple

from ottla.client.wire.security import NAMES, NO_SECURITY, PROTOCOLS, Security, read_security
from ottla.config.human import is_whole, parse_duration_ms
from ottla.config.option import InvalidConfig

DEFAULT_PORT = 9092
MILLISECONDS_MAX = (1 << 31) - 1
"""Of a time limit, as of Kafka's own clients: 24 days."""


class Address(NamedTuple):
    """Where a broker is reached."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap(text: str) -> tuple[Address, ...]:
    """Return the addresses of ``host[:port],...``; the port is 9092 unless given.

    A protocol in front (``PLAINTEXT://``, ``SASL_SSL://``) is taken off: ``security.protocol`` says
    it. Raises InvalidConfig.
    """
    addresses: list[Address] = []
    for part in text.split(","):
        bare = part.strip()
        protocol, separator, rest = bare.partition("://")
        if separator and protocol in PROTOCOLS:
            bare = rest
        if not bare:
            continue
        host, colon, port = bare.rpartition(":")
        if not colon or bare.endswith("]") or (bare.count(":") > 1 and not bare.startswith("[")):
            host, port = bare, str(DEFAULT_PORT)
        is_port = port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 1 << 16
        if not is_port or not host:
            raise InvalidConfig("bootstrap.servers", part, "expected host:port")
        addresses.append(Address(host.removeprefix("[").removesuffix("]"), int(port)))
    if not addresses:
        raise InvalidConfig("bootstrap.servers", text, "expected host:port")
    return tuple(addresses)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """One client's settings. Times in milliseconds."""

    bootstrap: tuple[Address, ...] = (Address("127.0.0.1", DEFAULT_PORT),)
    client_id: str = "ottla"
    connect_timeout_ms: int = 1_000
    """For one connection, the exchange of versions included."""
    request_timeout_ms: int = 30_000
    retry_timeout_ms: int = 30_000
    """How long a call goes on trying when the cluster answers that it may."""
    retry_backoff_ms: int = 50
    """The pause before the first retry; it doubles up to ``retry_backoff_max_ms``."""
    retry_backoff_max_ms: int = 1_000
    awaits_cluster: bool = False
    """Whether a first connection that fails is tried again, too: the cluster was reached before, so
    it is the cluster that is away, not the address that is wrong."""
    security: Security = NO_SECURITY
    missing_topic_ms: int | None = None
    """How long a call goes on trying while brokers say that a topic does not exist; None: as long
    as for any other error."""


def read_settings(texts: dict[str, str]) -> ClientSettings:
    """Return the settings that ``key=value`` pairs mean, with librdkafka's and Java's key names.

    Raises InvalidConfig for a key that is not known, or known and not to be had.
    """
    values: dict[str, object] = {}
    secured: dict[str, str] = {}
    for key, text in texts.items():
        if key in ("bootstrap.servers", "metadata.broker.list"):
            values["bootstrap"] = parse_bootstrap(text)
        elif key == "client.id":
            values["client_id"] = text
        elif key in _TIMES:
            values[_TIMES[key]] = _milliseconds(key, text)
        elif key in NAMES:
            secured[key] = text
        else:
            raise InvalidConfig(key, None, f"unknown client setting {key}{near_settings(key)}")
    return ClientSettings(**values, security=read_security(secured))  # type: ignore[arg-type]


_TIMES = {
    "socket.connection.setup.timeout.ms": "connect_timeout_ms",
    "request.timeout.ms": "request_timeout_ms",
    "socket.timeout.ms": "request_timeout_ms",
    "default.api.timeout.ms": "retry_timeout_ms",
    "delivery.timeout.ms": "retry_timeout_ms",
    "retry.backoff.ms": "retry_backoff_ms",
    "retry.backoff.max.ms": "retry_backoff_max_ms",
}


KNOWN = ("bootstrap.servers", "metadata.broker.list", "client.id", *_TIMES, *sorted(NAMES))
"""Every key that ``read_settings`` knows."""


def near_settings(key: str) -> str:
    """Return the words about the keys that ``key`` may have meant."""
    from difflib import get_close_matches  # noqa: PLC0415 - 2 ms, after a mistake only

    near = get_close_matches(key, KNOWN, 2)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _milliseconds(key: str, text: str) -> int:
    try:
        found = int(text) if is_whole(text.strip()) else parse_duration_ms(text)
    except ValueError as error:
        raise InvalidConfig(key, text, str(error)) from error
    if found > MILLISECONDS_MAX:
        raise InvalidConfig(key, text, f"expected at most {MILLISECONDS_MAX} ms")
    return found
