"""What ``ottla serve`` says: that clients may come, and why it cannot start.

Owns words only. For one node and for several.
"""

import contextlib
import errno
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla import __version__
from ottla.cli.failure import Failure
from ottla.cli.output import wrapped
from ottla.cli.terminal import width
from ottla.config import broker as options
from ottla.config.config import Config
from ottla.config.hosts import CLUSTER, INTER_BROKER_PORT
from ottla.config.security import LOOPBACK, PLAINTEXT
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from ottla.env.real_net import CannotListen

DEFAULT_PORT = 9092


class Listening(NamedTuple):
    """Where clients are served, and how they come in."""

    protocol: str
    host: str
    port: int


def _at(host: str, port: int) -> str:
    """Return an address as clients take it: IPv6 in brackets, ``*`` for every address."""
    return f"[{host}]:{port}" if ":" in host else f"{host or '*'}:{port}"


def local_address(host: str, port: int) -> str:
    """Return where a client on this machine reaches a listener."""
    return _at("127.0.0.1" if host in ("", "0.0.0.0", "::") else host, port)  # noqa: S104


def ready_lines(
    *,
    node_id: int,
    cluster_id: str,
    listeners: Sequence[Listening],
    node_ports: Sequence[Sequence[int]] = (),
    data: str | None,
    data_is_new: bool,
    is_durable: bool,
    milliseconds: int,
    first_steps: Sequence[str] = (),
    metadata: str = "",
) -> str:
    """Return what is printed when clients may come. ``data`` None: in memory.

    ``node_ports``: by listener, the ports of the nodes 1, 2, ...; none: there is only ``node_id``.
    ``metadata``: where several hosts keep it. ``first_steps``: lines in the place of what a client
    without a password may try.
    """
    protocol, host, port = listeners[0]
    reach = local_address(host, port)
    if data is None:
        kept = "in memory: gone with this process"
    else:
        shown = data if os.path.isabs(data) else os.path.join(".", data)
        age = "new" if data_is_new else "as it was"
        durable = "fsynced" if is_durable else "in the page cache, not yet fsynced"
        kept = f"{shown} ({age})    acks=all means {durable}"
    where = "" if port == DEFAULT_PORT else f" -b {reach}"
    who = f"{len(node_ports[0])} nodes" if node_ports else f"broker {node_id}"
    lines = (
        f"ottla {__version__}  {who}  cluster {cluster_id}  ready in {milliseconds} ms",
        *(f"  Kafka    {_listening(at)}" for at in listeners),
        *(f"  Nodes    {_shown(ports)}" for ports in node_ports),
        f"  Data     {kept}",
        *([f"  Metadata {metadata}"] if metadata else ()),
        f"  Try      ottla produce hello{where}   |   kcat -b {reach} -L",
    )
    # A client that has to log in needs more than a line can say: docs/security.md.
    return "\n".join(lines if protocol == PLAINTEXT else (*lines[:-1], *first_steps))


def tell(told: str) -> None:
    """Print lines of a start: on a terminal below each other where one is too long for it."""
    if sys.stdout.isatty():
        told = "\n".join(_fitting(line, width()) for line in told.split("\n"))
    with contextlib.suppress(BrokenPipeError):  # whoever started it may listen no more
        print(told, flush=True)


def _fitting(line: str, room: int) -> str:
    if len(line) <= room:
        return line
    # What is typed is copied, too: a terminal joins what it has broken itself.
    is_typed = line.startswith(("  Try", _INDENT))
    return line.replace("   |   ", f"\n{_INDENT}") if is_typed else wrapped(line, _INDENT)


_INDENT = " " * len("  Kafka    ")


def _shown(ports: Sequence[int]) -> str:
    """Return which node has which port."""
    numbered = ", ".join(f"{node} at {port}" for node, port in enumerate(ports, 1))
    return f"{numbered}    clients find them by the address above"


def _listening(at: Listening) -> str:
    if at.protocol == PLAINTEXT:
        is_local = at.host in LOOPBACK
        note = "this machine only; --listen 0.0.0.0 to open" if is_local else "no authentication"
    else:
        note = _NOTES[at.protocol]
    return f"{_at(at.host, at.port)}    {at.protocol} ({note})"


_NOTES = {
    "SASL_PLAINTEXT": "users log in; what they send is not encrypted",
    "SASL_SSL": "users log in; encrypted",
    "SSL": "encrypted; clients' certificates as ssl.client.auth says",
}


def explain_os_error(error: OSError, config: Config) -> Failure:
    """Return the failure that tells people why a broker cannot start."""
    from ottla.env.real_net import CannotListen
    from ottla.env.server_tls import ServerTlsUnusable

    if isinstance(error, ServerTlsUnusable):
        return Failure("no TLS listener can be opened", why=str(error))
    if isinstance(error, CannotListen):
        return _cannot_listen(error, config)
    data = config[options.LOG_DIRS][0]
    said = (error.strerror or str(error)).lower()
    if isinstance(error, BlockingIOError):
        return Failure(
            f"the data directory {data} is in use",
            why="another broker holds its lock",
            fix="stop that one, or choose another with --data",
        )
    path = error.filename if isinstance(error.filename, str) else ""
    return Failure(
        f"cannot use the data directory {data}",
        why=f"{path}: {said}" if path else said,
        fix="choose another with --data, or make it writable",
    )


def _cannot_listen(error: "CannotListen", config: Config) -> Failure:
    where = _at(error.host, error.port)
    first = config[options.LISTENERS][0]
    if error.errno == errno.EADDRINUSE:
        return _port_in_use(error, where, _other_port(error.port, config))
    why, fix = error.reason.lower(), ""
    if error.errno in (None, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
        if error.errno is not None:
            why = f"this machine has no such address ({why})"
        fix = "--listen 127.0.0.1, or --listen 0.0.0.0 for all addresses of this machine"
        if error.host != first.host:
            fix = "listeners with an address of this machine, such as 127.0.0.1, or none for all"
    elif error.errno == errno.EACCES:
        fix = "--port 9092, or more rights"
    return Failure(f"cannot listen on {where}", why=why, fix=fix)


def _other_port(port: int, config: Config) -> str:
    """Return how another port is chosen in the place of one that is in use."""
    first, *others = (each.port for each in config[options.LISTENERS])
    if port == first or (port not in others and config[CLUSTER] is None):
        return f"ottla serve --port {(port + 100) % 65536}"
    if port in others:
        return "another port for it in listeners"
    return f"{INTER_BROKER_PORT.key} with a free port"


def _port_in_use(error: "CannotListen", where: str, fix: str) -> Failure:
    """Say what answers on the port, if it is a broker."""
    from ottla.client.blocking.connection import BlockingConnection
    from ottla.client.wire.settings import Address, ClientSettings

    host = error.host if error.host not in ("", "0.0.0.0", "::") else "127.0.0.1"  # noqa: S104
    why = "another program listens there"
    with contextlib.suppress(OttlaError):
        connection = BlockingConnection(
            Address(host, error.port), ClientSettings(connect_timeout_ms=300)
        )
        first, last = connection.exchange.versions.get(0, (0, 0))
        connection.close()
        why = f"a Kafka-like broker answers there (ApiVersions: Produce {first}-{last})"
        fix += f"   or   ottla topic list -b {_at(host, error.port)}"
    return Failure(f"{where} is in use", why=why, fix=fix)
