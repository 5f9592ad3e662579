"""The reference pages that only the code knows: ``python -m tools.reference --check | --write``.

``docs/api-versions.md`` is what a broker, started here in memory, answers to ApiVersions: nothing
can be in it that is not served. ``docs/errors.md`` is the table of ``ottla.errors``; a code counts
as answered when a room of the broker names it. ``docs/commands.md`` is what the parsers know of the
command line. ``--check`` tells by its exit code whether the files are up to date, ``--write``
brings them up. (The options have ``ottla.config.docs``.)
"""

import asyncio
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from ottla.broker import Broker
from ottla.client.asyncio.connection import Connection
from ottla.client.wire.settings import Address
from ottla.config.files import broker_config
from ottla.env.real_net import AsyncioNet
from ottla.errors import ErrorCode
from ottla.protocol.apis import API_TABLE, ApiKey
from ottla.protocol.fields import Versions
from tools.commands_page import commands_page

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / "ottla"
BROKER_ROOMS = ("cluster", "handlers", "housekeeping", "log", "protocol", "records", "replication")
"""The rooms that answer requests. Others may know a code, but never send it."""

_API_VERSIONS = """\
# API versions

Made by `python -m tools.reference --write`; do not edit.

What a broker of this version answers to ApiVersions, and so what it serves: the table is the
router's own ([routes.py](../src/ottla/handlers/routes.py)). A request that is not in it is
answered by closing the connection, as Kafka does; only an ApiVersions request of an unknown
version is told the versions of ApiVersions, with error 35.

From the "flexible" version on, lengths are compact and structs end in tagged fields (KIP-482).
"""
_PRODUCE = """
Produce is advertised from version 0, yet versions 0 to 2 close the connection. Kafka 4 does both,
because librdkafka takes a missing version 0 for "this broker knows no compression".
"""
_ERRORS = """\
# Error codes

Made by `python -m tools.reference --write`; do not edit.

Kafka's codes under Kafka's names. "Retry" is what Kafka's clients assume: the same request may
succeed later without anybody changing it. Where an answer has room for a text, it gives the values
(topic-partition, offset, expected, found); else the sentence below.
"""


async def served_versions() -> Mapping[int, tuple[int, int]]:
    """Return what a real broker advertises: by API key, the first and last version."""
    broker = Broker(broker_config({"listeners": "PLAINTEXT://127.0.0.1:0"}), memory=True)
    await broker.start()
    try:
        connection = await Connection.open(AsyncioNet(), Address(*broker.address))
        connection.close()
        return connection.exchange.versions
    finally:
        await broker.stop()


def api_versions_page() -> str:
    """Return the page of the APIs that are served."""
    served = asyncio.run(served_versions())
    missing = [API_TABLE[key].name for key in ApiKey if key not in served]
    return "\n".join(
        [
            _API_VERSIONS,
            "| Key | API | Versions | Flexible from | Code |",
            "| --- | --- | --- | --- | --- |",
            *_api_rows(served),
            _PRODUCE,
            "Not served yet, though the codec knows their messages (`ottla.protocol.messages`):",
            f"{', '.join(missing)}.",
            "",
        ]
    )


def _api_rows(served: Mapping[int, tuple[int, int]]) -> Iterator[str]:
    for key, (first, last) in sorted(served.items()):
        api = API_TABLE[ApiKey(key)]
        module = _module_of(api.name, f"{api.key.name.lower()}.py")
        path = f"src/ottla/handlers/apis/{module}"
        versions = Versions(first, last)
        flexible = "never" if api.flexible_from is None else api.flexible_from
        yield f"| {key} | {api.name} | {versions} | {flexible} | [{module}](../{path}) |"


def _module_of(api: str, own: str) -> str:
    """Return the file that serves an API, below apis/: its own, or one that serves several."""
    apis = SOURCES / "handlers" / "apis"
    files = [apis / own] if (apis / own).exists() else sorted(apis.rglob("*.py"))
    for file in files:
        if re.search(rf"^class {api}\b", file.read_text(), re.MULTILINE):
            return file.relative_to(apis).as_posix()
    raise FileNotFoundError(f"{api} is served, but no file in {apis} has a class of that name")


def errors_page() -> str:
    """Return the page of the error codes: those this version answers, then the others."""
    answered = set(_named_by_the_broker())
    ours = [code for code in ErrorCode if code.name in answered]
    others = [code for code in ErrorCode if code.name not in answered]
    return "\n".join(
        [
            _ERRORS,
            "## Answered by this version",
            "",
            *_error_table(ours),
            "",
            "## Known, not answered yet",
            "",
            "Our own client and the tools understand these, too.",
            "",
            *_error_table(others),
            "",
        ]
    )


def _named_by_the_broker() -> Iterator[str]:
    for room in BROKER_ROOMS:
        for path in (SOURCES / room).rglob("*.py"):
            yield from re.findall(r"\bErrorCode\.([A-Z_0-9]+)\b", path.read_text(encoding="utf-8"))


def _error_table(codes: list[ErrorCode]) -> Iterator[str]:
    yield "| Code | Name | Retry | Meaning |"
    yield "| --- | --- | --- | --- |"
    for code in codes:
        retry = "yes" if code.retriable else ""
        yield f"| {int(code)} | `{code.name}` | {retry} | {code.text} |"


def main(arguments: list[str]) -> int:
    """Check or write the pages; return the exit code."""
    if arguments not in (["--check"], ["--write"]):
        sys.stderr.write("usage: python -m tools.reference --check | --write\n")
        return 2
    stale = []
    pages = {
        "api-versions.md": api_versions_page(),
        "errors.md": errors_page(),
        "commands.md": commands_page(),
    }
    for name, page in pages.items():
        path = ROOT / "docs" / name
        if arguments == ["--write"]:
            path.write_text(page, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != page:
            stale.append(f"docs/{name}")
    if stale:
        sys.stderr.write(
            f"{', '.join(stale)}: not up to date; run python -m tools.reference --write\n"
        )
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
