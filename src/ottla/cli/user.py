"""``ottla user``: who may log in by SCRAM. Passwords come from a file or the terminal."""

import sys
import unicodedata
from argparse import Namespace
from pathlib import Path

from ottla.cli import output as out
from ottla.cli.arguments import (
    Commands,
    Parser,
    add_client_options,
    add_command,
    add_group,
    add_output_option,
    at_least_one,
)
from ottla.cli.consent import add_consent_options, ask
from ottla.cli.failure import Exit, Failure
from ottla.cli.interruption import leaving
from ottla.cli.output import FORMATS, Row, answer, note, write_rows
from ottla.cli.run import run
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.users import NUMBERS, Users
from ottla.env.rng import SystemRng
from ottla.errors import ErrorCode, KafkaError
from ottla.security.credentials import ITERATIONS_MIN, SALT_BYTES, SCRAM_SHA_256

COLUMNS = ("user", "mechanism", "iterations")


def register(commands: Commands) -> None:
    """Declare the commands."""
    verbs = add_group(commands, "user", "List, make and delete users that log in by SCRAM.")
    parser = add_command(verbs, "list", "List users, and how they log in.", list_users)
    add_output_option(parser, *FORMATS)
    add_client_options(parser)

    about = "Make a user, or change a password, which is read from the terminal or from a file."
    parser = add_command(verbs, "set", about, set_password)
    parser.add_argument("name", metavar="NAME")
    _add_mechanism(parser)
    parser.add_argument("--password-file", metavar="FILE", help="its first line; - for stdin")
    parser.add_argument(
        "--iterations",
        type=at_least_one,
        default=ITERATIONS_MIN,
        metavar="N",
        help=f"rounds of hashing, from {ITERATIONS_MIN} on; {ITERATIONS_MIN}",
    )
    add_client_options(parser)

    about = "Delete how a user logs in; connections that he has stay open."
    parser = add_command(verbs, "delete", about, delete)
    parser.add_argument("name", metavar="NAME")
    _add_mechanism(parser)
    add_consent_options(parser)
    add_client_options(parser)


def _add_mechanism(parser: Parser) -> None:
    parser.add_argument(
        "--mechanism", choices=list(NUMBERS), default=SCRAM_SHA_256, help=SCRAM_SHA_256
    )


def list_users(options: Namespace) -> None:
    """List users."""

    async def command(cluster: Cluster) -> None:
        rows: list[Row] = [one._asdict() for one in await Users(cluster).list_credentials()]
        write_rows(rows, COLUMNS, out.chosen(options.output), header=not options.no_header)
        if not rows:
            note("no users yet: ottla user set NAME")

    run(options, command)


def set_password(options: Namespace) -> None:
    """Make a user or change a password."""

    async def command(cluster: Cluster) -> None:
        name = options.name
        if unicodedata.normalize("NFKC", name) != name:
            note(f"note: {name!r} may look like another name; names are compared as they are")
        await Users(cluster).set_password(
            name,
            options.mechanism,
            _read_password(name, options.password_file),
            salt=SystemRng().random_bytes(SALT_BYTES),
            iterations=options.iterations,
        )
        answer(f"{name} may log in by {options.mechanism}")

    run(options, command)


def delete(options: Namespace) -> None:
    """Delete how a user logs in."""

    async def command(cluster: Cluster) -> None:
        name, mechanism, users = options.name, options.mechanism, Users(cluster)
        try:
            known = [one.mechanism for one in await users.list_credentials([name])]
        except KafkaError as error:
            if error.code is not ErrorCode.RESOURCE_NOT_FOUND:
                raise
            known = []
        if mechanism not in known:
            has = f"; {name} has {', '.join(known)}" if known else ""
            why = f"{name} does not log in by {mechanism}{has}"
            raise Failure(why, fix="ottla user list", code=Exit.NOT_FOUND)
        note(f"delete the {mechanism} credential of {name}")
        if options.dry_run:
            return
        if not options.yes:
            ask(f"let {name} log in by {mechanism} no more? [y/N] ")
        await users.delete(name, mechanism)
        answer(f"{name} may not log in by {mechanism} any more")

    run(options, command)


def _read_password(name: str, path: str | None) -> str:
    """Return the password. Raises Failure for none. Never shows it."""
    if path == "-" or (path is None and not sys.stdin.isatty()):
        password = sys.stdin.readline().rstrip("\r\n")
    elif path is not None:
        password = _first_line(path)
    else:
        from getpass import getpass

        with leaving():
            password = getpass(f"password of {name}: ")
            if getpass("once more: ") != password:
                raise Failure("the two passwords differ", code=Exit.USAGE)
    if not password:
        raise Failure("no password", why="it is empty", fix="--password-file FILE", code=Exit.USAGE)
    return password


def _first_line(path: str) -> str:
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise Failure(f"cannot read {path}: {why}", code=Exit.USAGE) from error
    return lines[0] if lines else ""
