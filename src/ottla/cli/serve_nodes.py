"""``ottla serve --nodes N``: this process becomes the supervisor of N nodes.

Owns signals, the ready lines and the words of failures. Imports no broker: each node's own process
does.
"""

import asyncio
import errno
import sys
from itertools import filterfalse
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.failure import Exit, Failure, leave_at_once
from ottla.cli.interruption import SIGNALS, is_ignored
from ottla.cli.output import note
from ottla.cli.serving import Listening, explain_os_error, ready_lines, tell
from ottla.config import broker as options
from ottla.config import log as log_options
from ottla.config.config import Config
from ottla.config.files import listeners_of
from ottla.env.clock import SystemClock
from ottla.env.collector import Collector
from ottla.env.open_files import raise_open_files_limit
from ottla.env.processes import SystemProcesses
from ottla.env.real_net import CannotListen
from ottla.security.credentials import FirstUser
from ottla.supervision.shared import Outside
from ottla.supervision.supervisor import NodesFailed, Supervisor

if TYPE_CHECKING:
    from ottla.cli.secure import Secured


class Asked(NamedTuple):
    """What the command line says about the nodes."""

    nodes: int
    first_node_port: int | None
    is_memory: bool
    is_quiet: bool
    started: float
    """When the command began, in seconds."""


def run_nodes(
    config: Config, users: tuple[FirstUser, ...], secured: "Secured | None", asked: Asked
) -> None:
    """Run the nodes to their end. Raises Failure, OttlaError, InvalidConfig."""
    try:
        asyncio.run(_serve(config, users, secured, asked))
    except NodesFailed as error:
        code = Exit.USAGE if error.is_usage else Exit.FAILED
        raise Failure(error.what, why=error.why, fix=error.fix, code=code) from error
    except OSError as error:
        if isinstance(error, CannotListen) and error.errno == errno.EADDRINUSE:
            what, _, why = (error.strerror or str(error)).rpartition(": ")
            fix = "--port with more free ports behind it, or --node-ports 0 for free ones"
            raise Failure(what, why=why.lower(), fix=fix) from error
        raise explain_os_error(error, config) from error


async def _serve(
    config: Config, users: tuple[FirstUser, ...], secured: "Secured | None", asked: Asked
) -> None:
    raise_open_files_limit()
    if secured is not None:
        users = (*users, secured.user)
    supervisor = Supervisor(
        config,
        asked.nodes,
        outside=Outside.real(),
        processes=SystemProcesses(),
        write_line=note,
        memory=asked.is_memory,
        first_node_port=asked.first_node_port,
        first_users=users,
    )
    stop = _stop_by_signals(supervisor)
    loop = asyncio.get_running_loop()
    stopped = loop.create_task(stop.wait())
    starting = loop.create_task(supervisor.start())
    try:
        await asyncio.wait((starting, stopped), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            _open(config, supervisor, secured, asked)
            failed = loop.create_task(supervisor.failed.wait())
            await asyncio.wait((failed, stopped), return_when=asyncio.FIRST_COMPLETED)
            failed.cancel()
            if not asked.is_quiet and sys.stderr.isatty():
                note("stopping; once more Ctrl-C to leave at once")
    finally:
        stopped.cancel()
        await supervisor.stop()
    await starting
    if supervisor.failure is not None:
        raise supervisor.failure


def _stop_by_signals(supervisor: Supervisor) -> asyncio.Event:
    """Return what a signal sets; a second one ends everything at once."""
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            supervisor.kill()
            leave_at_once(Exit.INTERRUPTED)
        stop.set()

    for number in filterfalse(is_ignored, SIGNALS):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    return stop


def _open(config: Config, supervisor: Supervisor, secured: "Secured | None", asked: Asked) -> None:
    """Say that clients may come. Raises Failure."""
    if secured is not None:
        ports = {each.name: (each.host, each.door) for each in supervisor.ports}
        secured.write_client_files(ports[secured.listener])
    Collector(SystemClock()).start()
    if not asked.is_quiet:
        _tell_ready(config, supervisor, secured, asked)


def _tell_ready(
    config: Config, supervisor: Supervisor, secured: "Secured | None", asked: Asked
) -> None:
    doors = {each.name: (each.host, each.door) for each in supervisor.ports}
    told = ready_lines(
        node_id=config[options.NODE_ID],
        cluster_id=supervisor.cluster_id,
        listeners=[
            Listening(served.protocol, *doors[served.endpoint.name])
            for served in listeners_of(config)
        ],
        node_ports=[each.nodes for each in supervisor.ports],
        data=None if asked.is_memory else config[options.LOG_DIRS][0],
        data_is_new=supervisor.data_is_new,
        is_durable=config[log_options.LOG_FLUSH_INTERVAL_MESSAGES] == 1,
        milliseconds=round((SystemClock().monotonic() - asked.started) * 1000),
        first_steps=() if secured is None else secured.first_steps(),
    )
    tell(told)
