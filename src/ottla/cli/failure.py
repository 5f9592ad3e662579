"""How a command fails: one clear text on standard error and an exit code, never a traceback.

Owns the exit codes and the translation of the program's errors into what, why and fix.
"""

import os
import sys
from enum import IntEnum
from typing import NoReturn

from ottla.cli.output import json_text, note
from ottla.cli.streams import OutputFailed
from ottla.client.wire.errors import ConnectionFailed, Unsendable
from ottla.config.option import InvalidConfig
from ottla.errors import ErrorCode, KafkaError, OttlaError

WHY_INDENT = " " * len("  why: ")
"""Of what stands below a why or a fix."""


class Exit(IntEnum):
    """The exit codes of every command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    DENIED = 4
    NOT_FOUND = 5
    EXISTS = 6
    INTERRUPTED = 130


class Failure(Exception):
    """What went wrong, why, and what to do about it; ``why`` and ``fix`` may be empty."""

    def __init__(
        self, what: str, *, why: str = "", fix: str = "", code: Exit = Exit.FAILED
    ) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix
        self.code = code

    def __str__(self) -> str:
        lines = [f"error: {self.what}"]
        if self.why:
            lines.append(f"  why: {self.why}")
        if self.fix:
            lines.append(f"  fix: {self.fix}")
        return "\n".join(lines)


_CODES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Exit.NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_ID: Exit.NOT_FOUND,
    ErrorCode.GROUP_ID_NOT_FOUND: Exit.NOT_FOUND,
    ErrorCode.TOPIC_ALREADY_EXISTS: Exit.EXISTS,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Exit.DENIED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Exit.DENIED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Exit.DENIED,
    ErrorCode.SASL_AUTHENTICATION_FAILED: Exit.DENIED,
    # A broker judges what was typed, where the command line cannot.
    ErrorCode.INVALID_CONFIG: Exit.USAGE,
    ErrorCode.INVALID_GROUP_ID: Exit.USAGE,
    ErrorCode.INVALID_PARTITIONS: Exit.USAGE,
    ErrorCode.INVALID_PRINCIPAL_TYPE: Exit.USAGE,
    ErrorCode.INVALID_REGULAR_EXPRESSION: Exit.USAGE,
    ErrorCode.INVALID_REPLICATION_FACTOR: Exit.USAGE,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: Exit.USAGE,
    ErrorCode.INVALID_TOPIC_EXCEPTION: Exit.USAGE,
    ErrorCode.UNACCEPTABLE_CREDENTIAL: Exit.USAGE,
}


def explain(error: OttlaError) -> Failure:
    """Return the failure that tells people of ``error``."""
    if isinstance(error, ConnectionFailed):
        return _unreachable(error)
    if isinstance(error, Unsendable):
        return Failure(error.why, code=Exit.USAGE)
    if isinstance(error, KafkaError):
        code = _CODES.get(error.code, Exit.FAILED)
        # Not who said so: the client judges by what brokers told it, too.
        why = f"{error.code.name} ({error.code.value})"
        return Failure(error.why or error.code.text, why=why, code=code)
    if isinstance(error, InvalidConfig):
        return Failure(str(error), code=Exit.USAGE)
    # Errors of the rooms that a command must not import may carry what their finder knows.
    why, fix = getattr(error, "why", ""), getattr(error, "fix", "")
    what = getattr(error, "what", "")
    if what:
        return Failure(what, why=why, fix=fix)
    if fix:
        return Failure(f"cannot use {getattr(error, 'path', '')}", why=why, fix=fix)
    return Failure(str(error))


def _unreachable(error: ConnectionFailed) -> Failure:
    where = f"{error.host}:{error.port}"
    if error.refused:
        return Failure(
            f"nothing listens on {where} (connection refused)",
            fix="start one with `ottla serve`, or check -b",
            code=Exit.UNREACHABLE,
        )
    return Failure(
        f"no Kafka broker can be reached at {where}",
        why=error.why,
        fix="check -b; a slow network needs --timeout 5s",
        code=Exit.UNREACHABLE,
    )


_form: str | None = None


def say_as(form: str | None) -> None:
    """Print failures from now on as ``-o`` says; those of a table or TSV are text."""
    global _form  # noqa: PLW0603 - one command line in one process
    _form = form


def leave(failure: Failure) -> NoReturn:
    """Print the failure, where scripts asked for JSON or YAML in that form, and exit."""
    if _form in ("json", "jsonl", "yaml"):
        told = {
            "code": failure.code.name,
            "what": failure.what,
            "why": failure.why,
            "fix": failure.fix,
        }
        note(json_text({"error": told}), indent=None)  # JSON is YAML, too.
        sys.exit(failure.code)
    for line in str(failure).splitlines():
        if line.startswith("  fix: ottla "):  # It is copied.
            note(line, indent=None)
        else:
            note(line, indent="  " if line.startswith("error") else WHY_INDENT)
    sys.exit(failure.code)


def leave_at_once(code: int) -> NoReturn:
    """Exit without waiting for threads that sit in a read; standard output is flushed first."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, OutputFailed):
        pass
    os._exit(code)
