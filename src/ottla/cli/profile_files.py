"""Profiles: files of client settings that have a name, and where they are.

Owns the directory, ``$XDG_CONFIG_HOME/ottla`` or ``~/.config/ottla``: ``profiles/NAME.properties``
in the form of ``--command-config``, and ``current``, the name of the one in use. Owns how a secret
is told without being typed: ``sasl.password.file``, ``sasl.password.command``.
"""

import os
import re
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

from ottla.cli.failure import Exit, Failure
from ottla.cli.near import did_you_mean

SECRETS = frozenset(
    {
        "sasl.password",
        "sasl.jaas.config",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.secret",
        "ssl.key.password",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.key.pem",
    }
)
FILE, COMMAND = ".file", ".command"
COMMAND_SECONDS = 30
SECRET_BYTES_MAX = 1 << 16
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def directory() -> Path:
    """Return where profiles are; it may not be there yet."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(base) / "ottla"


def path_of(name: str) -> Path:
    """Return the file of a profile, which may not be there. Raises Failure for no name."""
    if not NAME.fullmatch(name):
        what = f"{name!r} cannot name a profile"
        raise Failure(what, why="letters, digits, . _ - are allowed", code=Exit.USAGE)
    return directory() / "profiles" / f"{name}.properties"


def existing(name: str) -> Path:
    """Return the file of a profile. Raises Failure, which tells which profiles there are."""
    path = path_of(name)
    if not path.is_file():
        there = names()
        fix = f"known: {', '.join(there)}" if there else f"ottla profile set {name} -b HOST:PORT"
        fix = did_you_mean(name, there) or fix
        raise Failure(f"there is no profile {name}", fix=fix, code=Exit.NOT_FOUND)
    return path


def names() -> list[str]:
    """Return the names of all profiles, sorted."""
    return sorted(each.stem for each in (directory() / "profiles").glob("*.properties"))


def current() -> str | None:
    """Return the name of the profile in use; None: there is none."""
    try:
        return (directory() / "current").read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def settings_file(options: Namespace) -> Path | None:
    """Return the file of client settings that holds for a command. Raises Failure.

    That is --command-config, else the profile of --profile or $OTTLA_PROFILE. The one in use holds
    where nothing else names a cluster: its password is not for another.
    """
    profile: str | None = options.profile
    if options.command_config is not None:
        if profile is not None:
            raise Failure("--profile and --command-config exclude each other", code=Exit.USAGE)
        return Path(options.command_config)
    if profile := profile or os.environ.get("OTTLA_PROFILE"):
        return existing(profile)
    keys = {each.partition("=")[0].strip() for each in options.settings}
    is_named = options.bootstrap is not None or os.environ.get("OTTLA_BOOTSTRAP")
    if is_named or keys & {"bootstrap.servers", "metadata.broker.list"}:
        return None
    in_use = current()
    return None if in_use is None else existing(in_use)


def with_secrets(texts: Mapping[str, str]) -> dict[str, str]:
    """Return settings with the secrets that files and commands tell. Raises Failure."""
    found = dict(texts)
    for key, text in texts.items():
        for ending, ask in ((FILE, _of_file), (COMMAND, _of_command)):
            if key.endswith(ending) and key.removesuffix(ending) in SECRETS:
                del found[key]
                found[key.removesuffix(ending)] = ask(key, text)
    return found


def _of_file(key: str, path: str) -> str:
    try:
        with Path(path).expanduser().open("rb") as file:
            data = file.read(SECRET_BYTES_MAX)
        return data.decode("utf-8-sig").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{key}: cannot read {path}", why=str(error), code=Exit.USAGE) from error


def _of_command(key: str, command: str) -> str:
    from shlex import split
    from subprocess import PIPE, SubprocessError, run

    try:
        done = run(  # noqa: S603 - what the person has set
            split(command), stdout=PIPE, check=True, timeout=COMMAND_SECONDS
        )
        return done.stdout.decode().rstrip("\r\n")
    except (OSError, ValueError, IndexError, SubprocessError) as error:
        raise Failure(f"{key}: the command told nothing", why=str(error)) from error
