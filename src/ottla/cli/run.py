"""Runs a client command: settings from options, one event loop, errors to exit codes.

Owns what every command that talks to a cluster shares: its options and its way to end (done,
failed, Ctrl-C, a reader that went away).
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.failure import Exit, Failure, explain, leave, leave_at_once
from ottla.client.cluster import Cluster
from ottla.client.settings import ClientSettings, parse_bootstrap, read_settings
from ottla.config.files import read_properties
from ottla.config.human import parse_duration_ms
from ottla.config.option import InvalidConfig
from ottla.errors import OttlaError

Bootstrap = Annotated[
    str,
    typer.Option(
        "-b",
        "--bootstrap-server",
        envvar="OTTLA_BOOTSTRAP",
        metavar="HOST:PORT,...",
        help="The cluster's address.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("-X", metavar="KEY=VALUE", help="A client setting, e.g. request.timeout.ms=5s."),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option("--command-config", metavar="FILE", help="A properties file of client settings."),
]
Timeout = Annotated[
    str, typer.Option("--timeout", metavar="TIME", help="How long to try to connect.")
]

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_TIMEOUT = "1s"


def client_settings(
    bootstrap: str, settings: list[str] | None, command_config: Path | None, timeout: str
) -> ClientSettings:
    """Return the client's settings; -X wins over the file, -b over both unless it is the default.

    Raises Failure.
    """
    texts: dict[str, str] = {}
    try:
        if command_config is not None:
            texts.update(read_properties(command_config.read_text(encoding="utf-8")))
        for setting in settings or ():
            key, equals, value = setting.partition("=")
            if not equals:
                raise InvalidConfig(key, None, f"-X {setting!r} is not of the form key=value")
            texts[key.strip()] = value.strip()
        if bootstrap != DEFAULT_BOOTSTRAP or "bootstrap.servers" not in texts:
            parse_bootstrap(bootstrap)
            texts["bootstrap.servers"] = bootstrap
        if timeout != DEFAULT_TIMEOUT:
            texts["socket.connection.setup.timeout.ms"] = str(_milliseconds(timeout))
        return read_settings(texts)
    except OSError as error:
        raise Failure(f"cannot read {command_config}: {error.strerror}", code=Exit.USAGE) from error
    except InvalidConfig as error:
        raise explain(error) from error


def run(
    command: Callable[[Cluster], Coroutine[None, None, None]],
    bootstrap: str,
    settings: list[str] | None,
    command_config: Path | None,
    timeout: str,
) -> None:
    """Run ``command`` with a cluster and leave the process in the right way if it fails."""
    try:
        chosen = client_settings(bootstrap, settings, command_config, timeout)
        asyncio.run(_with_cluster(command, chosen))
        sys.stdout.flush()
    except Failure as failure:
        leave(failure)
    except OttlaError as error:
        leave(explain(error))
    except BrokenPipeError:
        # Whoever read our output has seen enough, as `head` does. Nothing more may be written.
        leave_at_once(Exit.OK)
    except KeyboardInterrupt:
        leave_at_once(Exit.INTERRUPTED)


async def _with_cluster(
    command: Callable[[Cluster], Coroutine[None, None, None]], settings: ClientSettings
) -> None:
    async with Cluster(settings) as cluster:
        await command(cluster)


def _milliseconds(text: str) -> int:
    """Return the milliseconds of ``5s``; a bare number is seconds. Raises InvalidConfig."""
    try:
        if text.replace(".", "", 1).isdigit():
            return int(float(text) * 1000)
        return parse_duration_ms(text)
    except ValueError as error:
        raise InvalidConfig("--timeout", text, str(error)) from error
