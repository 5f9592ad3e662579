"""``ottla serve``: a broker in this process, until Ctrl-C or SIGTERM."""

import asyncio
import contextlib
import errno
import gc
import os
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence
from itertools import filterfalse
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ottla import __version__
from ottla.cli.arguments import Commands, add_command
from ottla.cli.failure import Exit, Failure, explain, leave, leave_at_once
from ottla.cli.interruption import SIGNALS, is_ignored
from ottla.cli.output import note
from ottla.config import broker as options
from ottla.config import log as log_options
from ottla.config.config import Config
from ottla.config.files import (
    broker_config,
    listeners_of,
    read_definitions,
    read_properties,
    read_toml,
    sort_out,
)
from ottla.config.listeners import Endpoint
from ottla.config.option import InvalidConfig, value_text
from ottla.config.security import LOOPBACK, PLAINTEXT
from ottla.env.clock import SystemClock
from ottla.env.collector import Collector
from ottla.env.open_files import raise_open_files_limit
from ottla.errors import OttlaError
from ottla.security.credentials import FirstUser, PasswordDiffers

if TYPE_CHECKING:
    from ottla.cli.secure import Secured

DEFAULT_PORT = 9092
STARTED = SystemClock().monotonic()
"""When the command began, in seconds; only the interpreter itself was there before."""


def register(commands: Commands) -> None:
    """Declare the command."""
    parser = add_command(commands, "serve", "Start a broker.", serve)
    parser.add_argument("--config", metavar="FILE", help="a server.properties or a TOML file")
    parser.add_argument("--data", metavar="DIR", help="where the log is; ./ottla-data")
    parser.add_argument("--port", type=_port, help="the port, 0 for a free one; 9092")
    parser.add_argument("--listen", metavar="HOST", help="the address, 0.0.0.0 for all; 127.0.0.1")
    parser.add_argument(
        "--memory", action="store_true", help="keep nothing: all data ends with the process"
    )
    parser.add_argument(
        "-D",
        dest="definitions",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a broker option, e.g. log.retention.ms=7d",
    )
    parser.add_argument(
        "--add-scram",
        dest="first_users",
        action="append",
        default=[],
        metavar="USER",
        help="who may log in to a new cluster: SCRAM-SHA-256=[name=NAME,password-file=FILE]",
    )
    parser.add_argument(
        "--secure",
        nargs="?",
        const="ottla-secure",
        metavar="DIR",
        help="TLS, a user, ACLs: makes certificates and clients' settings; ./ottla-secure",
    )
    parser.add_argument(
        "--nodes",
        type=_node_count,
        metavar="N",
        help="N nodes, each a process, as one cluster; auto: one per core; 1",
    )
    parser.add_argument(
        "--node-ports",
        type=_port,
        metavar="PORT",
        help="where the nodes' own ports begin, 0 for free ones; behind --port",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no ready lines")


def serve(arguments: Namespace) -> None:
    """Start a broker, and stay until it is told to stop."""
    try:
        if arguments.memory and arguments.data is not None:
            raise Failure("--memory and --data exclude each other", code=Exit.USAGE)
        if arguments.node_ports is not None and arguments.nodes is None:
            raise Failure("--node-ports is of no use without --nodes", code=Exit.USAGE)
        config = read_config(
            Path(arguments.config) if arguments.config else None,
            arguments.definitions,
            data=arguments.data,
            port=arguments.port,
            listen=arguments.listen,
            secure=None if arguments.secure is None else _directory(arguments.secure),
        )
        secured = None
        if arguments.secure is not None:
            from ottla.cli.secure import prepare

            secured = prepare(config, _directory(arguments.secure))
        users = _first_users(arguments.first_users)
        if arguments.nodes is not None and arguments.nodes > 1:
            from ottla.cli.serve_nodes import Asked, run_nodes

            asked = Asked(arguments.nodes, arguments.node_ports, arguments.memory, arguments.quiet)
            run_nodes(config, users, secured, asked)
            return
        _run(config, users, secured, memory=arguments.memory, quiet=arguments.quiet)
    except Failure as failure:
        leave(failure)
    except OttlaError as error:
        leave(explain(error))


def _first_users(texts: list[str]) -> tuple[FirstUser, ...]:
    """Return the users that a new cluster begins with. Raises Failure."""
    if not texts:
        return ()
    from ottla.cli.first_users import read_first_user

    return tuple(map(read_first_user, texts))


def _directory(typed: str) -> str:
    return os.path.abspath(os.path.expanduser(typed))


def _node_count(text: str) -> int:
    from ottla.supervision.layout import AUTO_NODES_MAX, NODES_MAX

    if text == "auto":
        from ottla.env.cores import usable_cores

        return min(usable_cores(), AUTO_NODES_MAX)
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= NODES_MAX:
        raise ArgumentTypeError(f"{text!r} is neither auto nor a number from 1 to {NODES_MAX}")
    return int(text)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) >= 1 << 16:
        raise ArgumentTypeError(f"{text!r} is not a port from 0 to 65535")
    return int(text)


def read_config(
    path: Path | None,
    definitions: list[str],
    *,
    data: str | None = None,
    port: int | None = None,
    listen: str | None = None,
    secure: str | None = None,
) -> Config:
    """Return the configuration: the file's, over it -D, over it the other options.

    ``secure``: the absolute path that ``--secure`` means; None: without it. Notes about keys
    without meaning go to standard error. Raises Failure.
    """
    try:
        from_file = sort_out(_read_file(path)) if path is not None else None
        defined = sort_out(read_definitions(definitions))
        texts = {**(from_file.texts if from_file else {}), **defined.texts}
        if data is not None:
            texts[options.LOG_DIRS.key] = data
        if secure is not None:
            from ottla.cli.secure import with_options

            texts = with_options(texts, secure)
        if port is not None or listen is not None:
            texts[options.LISTENERS.key] = value_text(_endpoints(texts, port, listen))
        config = broker_config(texts)
    except InvalidConfig as error:
        where = f"in {path}" if path is not None else ""
        raise Failure(str(error), why=where, fix="see docs/options.md", code=Exit.USAGE) from error
    for text in (*(from_file.notes if from_file else ()), *defined.notes):
        note(f"note: {text}")
    return config


def _endpoints(texts: dict[str, str], port: int | None, listen: str | None) -> tuple[Endpoint, ...]:
    """Return the listeners, with what --port and --listen change about the first."""
    text = texts.get(options.LISTENERS.key)
    listeners = options.LISTENERS.default if text is None else options.LISTENERS.parse(text)
    first = Endpoint(
        listeners[0].name,
        listeners[0].host if listen is None else listen,
        listeners[0].port if port is None else port,
    )
    return (first, *listeners[1:])


def _read_file(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}", code=Exit.USAGE) from error
    except UnicodeDecodeError as error:
        raise Failure(f"cannot read {path}: it is not UTF-8", code=Exit.USAGE) from error
    return read_toml(text) if path.suffix == ".toml" else read_properties(text)


def _loop_factory() -> "type[asyncio.AbstractEventLoop] | None":
    try:
        import uvloop
    except ImportError:
        return None
    factory: type[asyncio.AbstractEventLoop] = uvloop.Loop
    return factory


def _run(
    config: Config,
    users: tuple[FirstUser, ...],
    secured: "Secured | None",
    *,
    memory: bool,
    quiet: bool,
) -> None:
    """Run the broker to its end. Raises Failure, OttlaError, KeyboardInterrupt."""
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(config, users, secured, memory=memory, quiet=quiet))
    except PasswordDiffers as error:
        assert secured is not None, "only its user is compared"
        raise secured.password_differs(None if memory else config[options.LOG_DIRS][0]) from error
    except OSError as error:
        raise explain_os_error(error, config) from error


async def _serve(
    config: Config,
    users: tuple[FirstUser, ...] = (),
    secured: "Secured | None" = None,
    *,
    memory: bool,
    quiet: bool,
) -> None:
    gc.disable()  # as the entry point does, for the imports and the start
    from ottla.broker import Broker

    raise_open_files_limit()
    if secured is not None:
        users = (*users, secured.user)
    broker = Broker(config, memory=memory, first_users=users)
    await broker.start()
    if secured is not None:
        try:
            secured.write_client_files(broker.node.doors.addresses[secured.listener])
        except Failure:
            await broker.stop()
            raise
    Collector(SystemClock()).start()  # No later pass looks at what a start leaves.
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in filterfalse(is_ignored, SIGNALS):
        loop.add_signal_handler(number, _on_signal, stop)
    if not quiet:
        milliseconds = round((SystemClock().monotonic() - STARTED) * 1000)
        told = ready_lines(
            node_id=config[options.NODE_ID],
            cluster_id=broker.cluster_id,
            listeners=[
                Listening(served.protocol, *broker.node.doors.addresses[served.endpoint.name])
                for served in listeners_of(config)
            ],
            data=None if memory else config[options.LOG_DIRS][0],
            data_is_new=broker.data_is_new,
            is_durable=config[log_options.LOG_FLUSH_INTERVAL_MESSAGES] == 1,
            milliseconds=milliseconds,
            first_steps=() if secured is None else secured.first_steps(),
        )
        with contextlib.suppress(BrokenPipeError):  # whoever started it may listen no more
            print(told, flush=True)
    failed = loop.create_task(broker.failed.wait())
    failed.add_done_callback(lambda _: stop.set())
    await stop.wait()
    failed.cancel()
    if not quiet and sys.stderr.isatty():
        note("stopping; once more Ctrl-C to leave at once")
    await broker.stop()
    if broker.failure is not None:
        raise broker.failure


def _on_signal(stop: asyncio.Event) -> None:
    if stop.is_set():
        leave_at_once(Exit.INTERRUPTED)
    stop.set()


class Listening(NamedTuple):
    """Where clients are served, and how they come in."""

    protocol: str
    host: str
    port: int


def _at(host: str, port: int) -> str:
    """Return an address as clients take it: IPv6 in brackets, ``*`` for every address."""
    return f"[{host}]:{port}" if ":" in host else f"{host or '*'}:{port}"


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
) -> str:
    """Return what is printed when clients may come. ``data`` None: in memory.

    ``node_ports``: by listener, the ports of the nodes 1, 2, ...; none: there is only ``node_id``.
    ``first_steps``: lines in the place of what a client without a password may try.
    """
    protocol, host, port = listeners[0]
    reach = _at("127.0.0.1" if host in ("", "0.0.0.0", "::") else host, port)  # noqa: S104
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
        f"  Try      ottla produce hello{where}   |   kcat -b {reach} -L",
    )
    # A client that has to log in needs more than a line can say: docs/security.md.
    return "\n".join(lines if protocol == PLAINTEXT else (*lines[:-1], *first_steps))


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
    from ottla.env.server_tls import ServerTlsUnusable

    if isinstance(error, ServerTlsUnusable):
        return Failure("no TLS listener can be opened", why=str(error))
    endpoint = config[options.LISTENERS][0]
    where = _at(endpoint.host, endpoint.port)
    data = config[options.LOG_DIRS][0]
    said = (error.strerror or str(error)).lower()
    if error.errno == errno.EADDRINUSE:
        return _port_in_use(endpoint, where)
    if error.errno == errno.EADDRNOTAVAIL:
        return Failure(f"cannot listen on {where}", why=said, fix="--listen 127.0.0.1")
    if isinstance(error, BlockingIOError):
        return Failure(
            f"the data directory {data} is in use",
            why="another broker holds its lock",
            fix="stop that one, or choose another with --data",
        )
    path = error.filename if isinstance(error.filename, str) else ""
    if not path and error.errno == errno.EACCES:
        return Failure(f"cannot listen on {where}", why=said, fix="--port 9092, or more rights")
    return Failure(
        f"cannot use the data directory {data}",
        why=f"{path}: {said}" if path else said,
        fix="choose another with --data, or make it writable",
    )


def _port_in_use(endpoint: Endpoint, where: str) -> Failure:
    """Say what answers on the port, if it is a broker."""
    from ottla.client.blocking.cluster import BlockingConnection
    from ottla.client.wire.settings import Address, ClientSettings

    host = endpoint.host if endpoint.host not in ("", "0.0.0.0", "::") else "127.0.0.1"  # noqa: S104
    why = "another program listens there"
    fix = f"ottla serve --port {(endpoint.port + 100) % 65536}"
    with contextlib.suppress(OttlaError):
        connection = BlockingConnection(
            Address(host, endpoint.port), ClientSettings(connect_timeout_ms=300)
        )
        first, last = connection.exchange.versions.get(0, (0, 0))
        connection.close()
        why = f"a Kafka-like broker answers there (ApiVersions: Produce {first}-{last})"
        fix += f"   or   ottla topic list -b {_at(host, endpoint.port)}"
    return Failure(f"{where} is in use", why=why, fix=fix)
