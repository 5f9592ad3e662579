"""Makes the reference page of all options from the tables: ``python -m ottla.config.docs``.

``--check FILE`` exits with 1 when FILE is not up to date; ``--write FILE`` writes it. A tool for
``dev.py check``; the broker does not use it.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from ottla.config.broker import BROKER_TABLE
from ottla.config.group import GROUP_TABLE
from ottla.config.human import human_text
from ottla.config.option import Option, Table, value_text
from ottla.config.topic import TOPIC_TABLE

_INTRODUCTION = """\
# Options

Made by `python -m ottla.config.docs --write docs/options.md`; do not edit.

Keys are Apache Kafka's own; `ottla.*` are ours. Set a node's options in a properties or TOML file
(`ottla serve --config FILE`) or on the command line (`-D key=value`, where `7d` and `1GiB` are
understood). Set a topic's options when you create it (`ottla topic create T -c key=value`) or by
AlterConfigs and IncrementalAlterConfigs; one that is not set follows the node's option in the
column "Follows". Set a consumer group's options in the same way, also before the group exists.

"Change" says whether an option can change while the node runs: `read-only` cannot; `cluster-wide`
can, by IncrementalAlterConfigs, for one node or for all.
"""


def page() -> str:
    """Return the whole page."""
    return "\n".join([_INTRODUCTION, *_sections()])


def _sections() -> Iterator[str]:
    for table in (BROKER_TABLE, TOPIC_TABLE, GROUP_TABLE):
        for title, options in table.sections:
            yield f"## {title}\n"
            yield from _rows(table, options)
            yield ""
    yield "## Where a default is not Kafka's\n"
    for option in (*BROKER_TABLE, *TOPIC_TABLE):
        if option.deviates:
            yield f"- `{option.key}` = `{_default(option)}`. {option.deviates}"
    yield ""


def _rows(table: Table, options: tuple[Option[object], ...]) -> Iterator[str]:
    last = "Change" if table is BROKER_TABLE else "Follows"
    yield f"| Key | Default | Type, bounds | {last} | What it does |"
    yield "| --- | --- | --- | --- | --- |"
    for option in options:
        if option.internal:
            continue
        bounds = f" {option.validator.text}" if option.validator else ""
        linked = ", ".join(f"`{followed.key}`" for followed, _ in option.follows)
        fourth = option.scope.value if table is BROKER_TABLE else linked
        yield (
            f"| `{option.key}` | {_default_cell(option)} | {option.type.name}{bounds} "
            f"| {fourth} | {option.doc} |"
        )


def _default(option: Option[object]) -> str:
    return value_text(option.default)


def _default_cell(option: Option[object]) -> str:
    text = _default(option)
    if not text:
        return "none"
    human = human_text(option, option.default)
    return f"`{text}` ({human})" if human else f"`{text}`"


def main(arguments: list[str]) -> int:
    """Print, check or write the page; return the exit code."""
    match arguments:
        case []:
            sys.stdout.write(page())
        case ["--write", path]:
            Path(path).write_text(page(), encoding="utf-8")
        case ["--check", path]:
            if Path(path).read_text(encoding="utf-8") != page():
                sys.stderr.write(f"{path} is not up to date; run with --write {path}\n")
                return 1
        case _:
            sys.stderr.write("usage: python -m ottla.config.docs [--check FILE | --write FILE]\n")
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
