"""Listeners: the addresses a node binds, and those it tells its clients.

Owns the syntax ``NAME://host:port,...`` of ``listeners`` and ``advertised.listeners``. One listener
is served by this version: a list of several is refused.
Source: Kafka's documentation of the two options.
"""

from typing import NamedTuple


class Endpoint(NamedTuple):
    """One listener. An empty host means every address of the machine; port 0 a free one."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def read_endpoints(text: str) -> tuple[Endpoint, ...]:
    """Return the endpoint of a list of at most one. Raises ValueError with the reason."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if len(parts) > 1:
        # A second one that nobody serves would be a door that people believe in.
        raise ValueError("One listener is served by this version")
    return tuple(_read_endpoint(part) for part in parts)


def _read_endpoint(text: str) -> Endpoint:
    name, separator, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    if not name or not separator or not colon or not _is_port(port):
        raise ValueError(f"Unable to parse {text} to a broker endpoint, expected NAME://host:port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"The IPv6 address in {text} must stand in brackets")
    if name.upper() != "PLAINTEXT":
        raise ValueError(f"Listener {name} needs a security protocol; only PLAINTEXT is served")
    return Endpoint(name.upper(), host, int(port))


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and int(text) < 1 << 16
