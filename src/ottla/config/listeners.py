"""Listeners: the addresses that a node binds, and those that it tells its clients.

Owns the syntax of ``listeners`` and ``advertised.listeners`` (``NAME://host:port,...``) and of
``listener.security.protocol.map`` (``NAME:PROTOCOL,...``). ``ottla.config.security`` combines them
with the other options of listeners, and refuses what cannot be served.
Source: Kafka's documentation of the options.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_NAME = re.compile(r"[A-Z0-9_-]{1,64}")
_NOBODYS = ("0.0.0.0", "::")  # noqa: S104 - names to compare with


class Endpoint(NamedTuple):
    """One listener. An empty host means every address of the machine; port 0 means a free port."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class ProtocolMap(NamedTuple):
    """The security protocol of each listener's name. ``str()`` gives the option's text."""

    protocols: Mapping[str, str]

    def __str__(self) -> str:
        return ",".join(f"{name}:{protocol}" for name, protocol in self.protocols.items())


def read_endpoints(text: str) -> tuple[Endpoint, ...]:
    """Return the endpoints of a list. Raises ValueError, which says why."""
    endpoints = _read_endpoints(text)
    ports = [(endpoint.host, endpoint.port) for endpoint in endpoints if endpoint.port]
    if len(set(ports)) < len(ports):
        raise ValueError("Each listener must have a different port")
    return endpoints


def read_advertised(text: str) -> tuple[Endpoint, ...]:
    """Return the endpoints of a list that clients are told. Raises ValueError, which says why.

    Two listeners may be told by one address: what stands there may know them apart.
    """
    endpoints = _read_endpoints(text)
    for endpoint in endpoints:
        if endpoint.host in _NOBODYS:
            why = "clients cannot connect to it; without the entry each is told the host it used"
            raise ValueError(f"{endpoint}: {why}")
    return endpoints


def _read_endpoints(text: str) -> tuple[Endpoint, ...]:
    endpoints = tuple(_read_endpoint(part.strip()) for part in text.split(",") if part.strip())
    names = [endpoint.name for endpoint in endpoints]
    if len(set(names)) < len(names):
        raise ValueError("Each listener must have a different name")
    return endpoints


def read_protocol_map(text: str) -> ProtocolMap:
    """Return the map that ``NAME:PROTOCOL,...`` stands for. Raises ValueError with the reason."""
    protocols: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = part.rpartition(":")
        if not colon:
            raise ValueError(f"Unable to parse {part}, expected NAME:PROTOCOL")
        name = _checked_name(name.strip(), part)
        if name in protocols:
            raise ValueError(f"Listener {name} stands twice")
        protocols[name] = protocol.strip().upper()
        if protocols[name] not in PROTOCOLS:
            raise ValueError(f"{part}: {protocol.strip()} is no security protocol")
    return ProtocolMap(protocols)


def _read_endpoint(text: str) -> Endpoint:
    name, separator, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    if not name or not separator or not colon or not _is_port(port):
        raise ValueError(f"Unable to parse {text} to a broker endpoint, expected NAME://host:port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"The IPv6 address in {text} must stand in brackets")
    return Endpoint(_checked_name(name, text), host, int(port))


def _checked_name(name: str, text: str) -> str:
    if not _NAME.fullmatch(name.upper()):
        raise ValueError(f"The listener's name in {text} may have letters, digits, _ and - only")
    return name.upper()


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and int(text) < 1 << 16
