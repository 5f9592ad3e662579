"""Runs a client command: settings from options, one event loop, errors to exit codes.

Owns the way every command that talks to a cluster ends: done, failed, or told to by a signal.
"""

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Coroutine
from pathlib import Path

from ottla.cli import interruption
from ottla.cli.arguments import DEFAULT_BOOTSTRAP, DEFAULT_TIMEOUT
from ottla.cli.failure import Exit, Failure, explain, leave, leave_at_once
from ottla.cli.output import note
from ottla.cli.profile_files import settings_file, with_secrets
from ottla.cli.waiting import Waiting
from ottla.client.asyncio.cluster import Cluster
from ottla.client.wire.settings import (
    KNOWN,
    ClientSettings,
    near_settings,
    parse_bootstrap,
    read_settings,
)
from ottla.config.human import is_whole, parse_duration_ms
from ottla.config.option import InvalidConfig
from ottla.env.clock import SystemClock
from ottla.errors import OttlaError


def run(options: Namespace, command: Callable[[Cluster], Coroutine[None, None, None]]) -> None:
    """Run ``command`` with a cluster, and leave the process in the right way if it fails."""
    try:
        settings = client_settings(
            options.bootstrap,
            options.settings,
            settings_file(options),
            options.timeout,
        )
        interruption.run(_with_cluster(command, settings))
        sys.stdout.flush()
    except Failure as failure:
        leave(failure)
    except OttlaError as error:
        leave(explain(error))
    except interruption.Told as told:
        leave_at_once(told.exit_code)


def client_settings(
    bootstrap: str | None, settings: list[str], command_config: Path | None, timeout: str
) -> ClientSettings:
    """Return the client's settings.

    -b wins over -X, that over the file, and this over $OTTLA_BOOTSTRAP. Raises Failure.
    """
    texts: dict[str, str] = {}
    try:
        if command_config is not None:
            texts.update(_of_a_client(_read_file(command_config), command_config))
        for setting in settings:
            key, equals, value = setting.partition("=")
            if not equals:
                raise InvalidConfig(key, None, f"-X {setting!r} is not of the form key=value")
            texts[key.strip()] = value.strip()
        texts = with_secrets(texts)
        names_cluster = "bootstrap.servers" in texts or "metadata.broker.list" in texts
        if bootstrap is not None or not names_cluster:
            bootstrap = bootstrap or os.environ.get("OTTLA_BOOTSTRAP") or DEFAULT_BOOTSTRAP
            parse_bootstrap(bootstrap)
            texts.pop("metadata.broker.list", None)
            texts["bootstrap.servers"] = bootstrap
        if timeout != DEFAULT_TIMEOUT:
            texts["socket.connection.setup.timeout.ms"] = str(_milliseconds(timeout))
        return read_settings(texts)
    except InvalidConfig as error:
        raise _with_option(error) from error


def _with_option(error: InvalidConfig) -> Failure:
    """Return the failure, with the option that says here what a client's setting would."""
    from ottla.cli.kafka_names import OPTIONS_OF_SETTINGS

    failure = explain(error)
    if error.key in OPTIONS_OF_SETTINGS:
        failure.fix = f"it is an option here: {OPTIONS_OF_SETTINGS[error.key]}"
    return failure


def _of_a_client(texts: dict[str, str], path: Path) -> dict[str, str]:
    """Return what means something here; Kafka's files are for producers and consumers, too."""
    texts = with_secrets(texts)
    unknown = [key for key in texts if key not in KNOWN]
    for key in unknown:
        note(f"note: {key} in {path} means nothing here{near_settings(key)}")
    return {key: text for key, text in texts.items() if key not in unknown}


def _read_file(path: Path) -> dict[str, str]:
    from ottla.config.files import read_properties

    try:
        return read_properties(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"cannot read {path}", why=str(error), code=Exit.USAGE) from error


async def _with_cluster(
    command: Callable[[Cluster], Coroutine[None, None, None]], settings: ClientSettings
) -> None:
    async with Cluster(settings, trouble=Waiting(SystemClock())) as cluster:
        await command(cluster)


def _milliseconds(text: str) -> int:
    """Return the milliseconds of ``5s``; a bare number is seconds. Raises InvalidConfig."""
    try:
        if is_whole(text.replace(".", "", 1)):
            return int(float(text) * 1000)
        return parse_duration_ms(text)
    except ValueError as error:
        raise InvalidConfig("--timeout", text, str(error)) from error
