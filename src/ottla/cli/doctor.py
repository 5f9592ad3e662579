"""``ottla doctor``: what a data directory holds, and what is odd about it. Changes nothing.

Quick: names and small files. ``ottla log verify`` reads every byte.
"""

import sys
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from ottla.cli.arguments import Commands, add_command, add_output_option
from ottla.cli.failure import Exit, Failure, leave
from ottla.cli.log import show_findings
from ottla.cli.output import FORMATS, Format, chosen, note
from ottla.config.human import size_text

if TYPE_CHECKING:
    from ottla.log.inspect.examine import DataDirectory

DEFAULT_DIRECTORY = "ottla-data"


def register(commands: Commands) -> None:
    """Declare the command."""
    about = "Tell whose a data directory is, how it was left, and what to do about what is odd."
    parser = add_command(commands, "doctor", about, doctor)
    parser.add_argument(
        "directory",
        metavar="DIR",
        nargs="?",
        default=DEFAULT_DIRECTORY,
        help=f"the data directory; {DEFAULT_DIRECTORY}",
    )
    add_output_option(parser, *FORMATS)


def doctor(options: Namespace) -> None:
    """Examine the directory. Exits with 1 when records are lost or cannot be served."""
    from ottla.env.real_disk import RealDisk
    from ottla.log.inspect.examine import examine
    from ottla.log.inspect.findings import Severity

    path = options.directory.rstrip("/") or "/"
    disk = RealDisk()
    try:
        if not disk.is_directory(path):
            fix = "name the data directory: the one that `ottla serve --data` is given"
            leave(Failure(f"there is no directory {path}", fix=fix, code=Exit.NOT_FOUND))
        directory, findings = examine(disk, path)
    except PermissionError as error:
        leave(Failure(f"cannot read {path}", why=error.strerror or "", code=Exit.DENIED))
    except OSError as error:
        leave(Failure(f"cannot read {path}", why=str(error)))
    facts = _facts(directory)
    format_ = Format.TABLE if options.output is None else chosen(options.output)
    if format_ is Format.TABLE:
        words = {name: name.removesuffix("_bytes").replace("_", " ") for name in facts}
        width = max(map(len, words.values()))
        for name, value in facts.items():
            print(f"{words[name]:{width}}  {_shown(name, value)}")
    show_findings(
        findings, format_, facts, header=not options.no_header, is_one_line=format_ is Format.JSONL
    )
    if not findings:
        note("nothing odd was found; `ottla log verify` reads every byte")
    sys.stdout.flush()
    if any(finding.severity is Severity.ERROR for finding in findings):
        sys.exit(Exit.FAILED)


def _facts(directory: "DataDirectory") -> dict[str, Any]:
    identity = directory.identity
    return {
        "directory": directory.path,
        "kind": directory.kind,
        "cluster_id": None if identity is None else identity.cluster_id,
        "node_id": None if identity is None else identity.node_id,
        "directory_id": None if identity is None else identity.directory_id,
        "is_running": directory.locked_by is not None,
        "process": directory.locked_by or None,
        "stopped_cleanly": None if directory.locked_by is not None else directory.is_clean,
        "topics": len({each.topic_partition.topic for each in directory.partitions}),
        "partitions": len(directory.partitions),
        "segments": sum(each.segment_count for each in directory.partitions),
        "size_bytes": directory.size_bytes,
        "waiting_for_removal": directory.waiting_for_removal,
        "free_bytes": directory.free_bytes,
        "total_bytes": directory.total_bytes,
    }


def _shown(name: str, value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and name.endswith("_bytes"):
        return size_text(value)
    return str(value)
