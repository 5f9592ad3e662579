"""``ottla serve``: a broker in this process, until Ctrl-C or SIGTERM."""

import asyncio
import contextlib
import gc
import os
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import AsyncIterator, Mapping
from itertools import filterfalse
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from ottla.cli.arguments import Commands, add_command
from ottla.cli.failure import Exit, Failure, explain, leave, leave_at_once
from ottla.cli.interruption import SIGNALS, is_ignored
from ottla.cli.output import note
from ottla.cli.serving import Listening, explain_os_error, local_address, ready_lines, tell
from ottla.config import broker as options
from ottla.config import log as log_options
from ottla.config.authorization import AUTHORIZER_CLASS_NAME
from ottla.config.config import Config
from ottla.config.files import (
    broker_config,
    listeners_of,
    read_definitions,
    read_properties,
    read_toml,
    sort_out,
)
from ottla.config.hosts import CLUSTER
from ottla.config.listeners import Endpoint
from ottla.config.option import InvalidConfig, value_text
from ottla.config.security import PLAINTEXT
from ottla.config.unused import key_of_encrypted_nodes, why_no_listener_of_nodes
from ottla.env.clock import SystemClock
from ottla.env.collector import Collector
from ottla.env.open_files import raise_open_files_limit
from ottla.errors import OttlaError
from ottla.security.credentials import FirstUser, PasswordDiffers

if TYPE_CHECKING:
    from ottla.broker import Broker
    from ottla.cli.secure import Secured
    from ottla.node.hosts import Host

DEMO_STOP_SECONDS = 1.0
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
    parser.add_argument(
        "--cluster",
        metavar="ETCD",
        help="one of several hosts: etcd://H1:2379,H2:2379,H3:2379/NAME",
    )
    parser.add_argument("--node-id", type=_node_id, metavar="K", help="the number of this node; 1")
    parser.add_argument(
        "--advertise",
        metavar="HOST[:PORT]",
        help="the address by which clients and other hosts reach this one; that of --listen",
    )
    parser.add_argument(
        "--demo", action="store_true", help="with traffic in a topic, and a group that lags"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no ready lines")


def serve(arguments: Namespace) -> None:
    """Start a broker, and stay until it is told to stop."""
    try:
        if arguments.memory and arguments.data is not None:
            raise Failure("--memory and --data exclude each other", code=Exit.USAGE)
        if arguments.demo and (arguments.nodes or 1) > 1:
            raise Failure("--demo and --nodes exclude each other", code=Exit.USAGE)
        if arguments.node_ports is not None and arguments.nodes is None:
            raise Failure("--node-ports is of no use without --nodes", code=Exit.USAGE)
        config = read_config(
            Path(arguments.config) if arguments.config else None,
            arguments.definitions,
            data=arguments.data,
            port=arguments.port,
            listen=arguments.listen,
            advertise=arguments.advertise,
            further=_further(arguments),
            secure=None if arguments.secure is None else _directory(arguments.secure),
        )
        _check_cluster(arguments, config)
        secured = None
        if arguments.secure is not None:
            from ottla.cli.secure import prepare

            secured = prepare(config, _directory(arguments.secure))
        users = _first_users(arguments.first_users)
        if arguments.nodes is not None and arguments.nodes > 1:
            from ottla.cli.serve_nodes import Asked, run_nodes

            asked = Asked(
                arguments.nodes, arguments.node_ports, arguments.memory, arguments.quiet, STARTED
            )
            run_nodes(config, users, secured, asked)
            return
        host = None
        if config[CLUSTER] is not None:
            from ottla.node.hosts import host_of

            host = host_of(config)
        if arguments.demo:
            _check_demo(config)
        _run(
            config,
            users,
            secured,
            memory=arguments.memory,
            quiet=arguments.quiet,
            demo=arguments.demo,
            host=host,
        )
    except Failure as failure:
        leave(failure)
    except OttlaError as error:
        leave(explain(error))


def _check_cluster(arguments: Namespace, config: Config) -> None:
    """Refuse what one of several hosts cannot be, however that is told. Raises Failure."""
    if config[CLUSTER] is None:
        return
    told = CLUSTER.key if arguments.cluster is None else "--cluster"
    for name in ("memory", "demo", "secure"):
        if getattr(arguments, name):
            raise Failure(f"--{name} and {told} exclude each other", code=Exit.USAGE)
    if (arguments.nodes or 1) > 1:
        fix = "one node per host; start further ones with a --node-id and a --data of their own"
        raise Failure(f"--nodes and {told} exclude each other", fix=fix, code=Exit.USAGE)


def _further(arguments: Namespace) -> dict[str, str]:
    """Return the options that stand for arguments of the same meaning."""
    further = {}
    if arguments.cluster is not None:
        further[CLUSTER.key] = arguments.cluster
    if arguments.node_id is not None:
        further[options.NODE_ID.key] = str(arguments.node_id)
    return further


def _check_demo(config: Config) -> None:
    """Refuse a broker that the demo's clients, who are nobody, could not talk to."""
    first = next(iter(listeners_of(config)))
    if first.protocol != PLAINTEXT or config[AUTHORIZER_CLASS_NAME]:
        why = "its clients do not log in"
        raise Failure("--demo needs a PLAINTEXT listener, and no ACLs", why=why, code=Exit.USAGE)


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


def _node_id(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) >= 1 << 31:
        raise ArgumentTypeError(f"{text!r} is not a number from 0 to {(1 << 31) - 1}")
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
    advertise: str | None = None,
    further: Mapping[str, str] = MappingProxyType({}),
    secure: str | None = None,
) -> Config:
    """Return the configuration: the file's, over it -D, over it the other options.

    ``further``: options that other arguments stand for. ``secure``: the absolute path that
    ``--secure`` means; None: without it. Notes about keys without meaning go to standard error.
    Raises Failure.
    """
    try:
        filed = _read_file(path) if path is not None else {}
        named = read_definitions(definitions)
        from_file, defined = sort_out(filed), sort_out(named)
        texts = {**from_file.texts, **defined.texts}
        given = {**filed, **named}
        names = [each.name for each in _listeners_in(texts)]
        if (unknown := why_no_listener_of_nodes(given, names)) is not None:
            key, why = unknown
            raise InvalidConfig(key, given[key], f"{key}: {why}")
        if data is not None:
            texts[options.LOG_DIRS.key] = data
        if secure is not None:
            from ottla.cli.secure import with_options

            texts = with_options(texts, secure)
        if port is not None or listen is not None:
            texts[options.LISTENERS.key] = value_text(_endpoints(texts, port, listen))
        if advertise is not None:
            key = options.ADVERTISED_LISTENERS.key
            texts[key] = value_text(_advertised(texts, advertise))
        texts.update(further)
        encrypted = key_of_encrypted_nodes(given)
        if CLUSTER.key in texts and encrypted is not None:
            why = (
                f"{encrypted} cannot be honoured: what hosts say to each other is not encrypted by"
                " this version; take it out, and keep their ports in a network that you trust"
            )
            raise InvalidConfig(encrypted, None, why)
        config = broker_config(texts)
    except InvalidConfig as error:
        where = f"in {path}" if path is not None else ""
        raise Failure(str(error), why=where, fix="see docs/options.md", code=Exit.USAGE) from error
    for text in (*from_file.notes, *defined.notes):
        note(f"note: {text}")
    return config


def _listeners_in(texts: dict[str, str]) -> tuple[Endpoint, ...]:
    text = texts.get(options.LISTENERS.key)
    return options.LISTENERS.default if text is None else options.LISTENERS.parse(text)


def _endpoints(texts: dict[str, str], port: int | None, listen: str | None) -> tuple[Endpoint, ...]:
    """Return the listeners, with what --port and --listen change about the first."""
    listeners = _listeners_in(texts)
    first = Endpoint(
        listeners[0].name,
        listeners[0].host if listen is None else listen,
        listeners[0].port if port is None else port,
    )
    return (first, *listeners[1:])


def _advertised(texts: dict[str, str], told: str) -> tuple[Endpoint, ...]:
    """Return the advertised listeners, with what --advertise says of the first one."""
    first, *_ = _endpoints(texts, None, None)
    if not first.port and not _has_port(told):
        raise InvalidConfig(options.ADVERTISED_LISTENERS.key, None, f"{told}: with which port?")
    text = texts.get(options.ADVERTISED_LISTENERS.key)
    others = () if text is None else options.ADVERTISED_LISTENERS.parse(text)
    (own,) = options.ADVERTISED_LISTENERS.parse(
        f"{first.name}://{told}" if _has_port(told) else f"{first.name}://{told}:{first.port}"
    )
    return (own, *(each for each in others if each.name != first.name))


def _has_port(text: str) -> bool:
    host, colon, port = text.rpartition(":")
    return (
        bool(colon)
        and port.isascii()
        and port.isdigit()
        and (":" not in host or host.endswith("]"))
    )


def _read_file(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8-sig")
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
    demo: bool,
    host: "Host | None" = None,
) -> None:
    """Run the broker to its end. Raises Failure, OttlaError, KeyboardInterrupt."""
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(
                _serve(config, users, secured, memory=memory, quiet=quiet, demo=demo, host=host)
            )
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
    demo: bool = False,
    host: "Host | None" = None,
) -> None:
    gc.disable()  # as the entry point does, for the imports and the start
    from ottla.broker import Broker

    raise_open_files_limit()
    if secured is not None:
        users = (*users, secured.user)
    broker = Broker(config, memory=memory, first_users=users, host=host)
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
            metadata="" if host is None else str(host.address),
        )
        tell(told)
    failed = loop.create_task(broker.failed.wait())
    failed.add_done_callback(lambda _: stop.set())
    async with _demo(broker, config, quiet=quiet) if demo else contextlib.nullcontext():
        await stop.wait()
    failed.cancel()
    if not quiet and sys.stderr.isatty():
        note("stopping; once more Ctrl-C to leave at once")
    await broker.stop()
    if broker.failure is not None:
        raise broker.failure


@contextlib.asynccontextmanager
async def _demo(broker: "Broker", config: Config, *, quiet: bool) -> AsyncIterator[None]:
    """Run the demo's clients beside the broker."""
    from ottla.cli.demo import TOLD, Demo
    from ottla.env.rng import SystemRng

    host, port = broker.node.doors.addresses[next(iter(listeners_of(config))).endpoint.name]
    running = asyncio.create_task(Demo(local_address(host, port), SystemClock(), SystemRng()).run())
    if not quiet:
        tell(TOLD)
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait([running], timeout=DEMO_STOP_SECONDS)


def _on_signal(stop: asyncio.Event) -> None:
    if stop.is_set():
        leave_at_once(Exit.INTERRUPTED)
    stop.set()
