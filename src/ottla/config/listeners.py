"""Listeners: the addresses a node binds, and those it tells its clients.

Owns the syntax ``NAME://host:port,...`` of ``listeners`` and ``advertised.listeners``.
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
    """Return the endpoints of a comma-separated list. Raises ValueError with the reason."""
    endpoints = tuple(_read_endpoint(part.strip()) for part in text.split(",") if part.strip())
    names = [endpoint.name for endpoint in endpoints]
    if len(set(names)) != len(names):
        raise ValueError("Each listener must have a different name")
    return endpoints


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
