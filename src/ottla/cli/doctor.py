"""``ottla doctor``: what a data directory holds, and what is odd about it. Changes nothing.

Quick: names and small files. ``ottla log verify`` reads every byte. Given HOST:PORT it looks at a
cluster: ``doctor_cluster``.
"""

import sys
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from ottla.cli.arguments import (
    Commands,
    add_client_options,
    add_command,
    add_output_option,
)
from ottla.cli.failure import Exit, Failure, leave
from ottla.cli.log import show_findings
from ottla.cli.output import FORMATS, Format, answer, chosen, note
from ottla.config.human import is_whole, size_text

if TYPE_CHECKING:
    from ottla.log.inspect.examine import DataDirectory

DEFAULT_DIRECTORY = "ottla-data"


def register(commands: Commands) -> None:
    """Declare the command."""
    about = (
        "Tell whose a data directory is, how it was left, and what to do about what is odd.\n"
        "Of a cluster, by HOST:PORT: whether clients reach it, what is offline or nearly full, who "
        "might get in."
    )
    parser = add_command(commands, "doctor", about, doctor)
    parser.add_argument(
        "place",
        metavar="DIR|HOST:PORT",
        nargs="?",
        help=f"the data directory, or a broker of the cluster; {DEFAULT_DIRECTORY}",
    )
    parser.add_argument(
        "--strict", action="store_true", help="of a cluster: warnings count as failure, too"
    )
    parser.add_argument(
        "--no-logins", action="store_true", help="of a cluster: do not try passwords of examples"
    )
    add_output_option(parser, *FORMATS)
    add_client_options(parser)


def doctor(options: Namespace) -> None:
    """Examine a directory or a cluster. Exits with 1 when something is lost or cannot be served."""
    if _is_address(options):
        from ottla.cli.doctor_cluster import doctor_of_cluster

        doctor_of_cluster(options)
    else:
        _of_directory(options, options.place or DEFAULT_DIRECTORY)


def _is_address(options: Namespace) -> bool:
    """Whether a cluster is meant; then its address is ``options.bootstrap``."""
    place = options.place
    if place is None:
        is_told = options.bootstrap != options.parser.get_default("bootstrap")
        return is_told or bool(options.settings) or options.command_config is not None
    _, colon, port = place.rpartition(":")
    if not colon or not is_whole(port) or "/" in place:
        return False
    options.bootstrap = place
    return True


def _of_directory(options: Namespace, place: str) -> None:
    from ottla.env.real_disk import RealDisk
    from ottla.log.inspect.findings import Severity
    from ottla.log.inspect.nodes import look

    path = place.rstrip("/") or "/"
    disk = RealDisk()
    try:
        if not disk.is_directory(path):
            fix = "name the data directory: the one that `ottla serve --data` is given"
            leave(Failure(f"there is no directory {path}", fix=fix, code=Exit.NOT_FOUND))
        looked = look(disk, path)
    except PermissionError as error:
        leave(Failure(f"cannot read {path}", why=error.strerror or "", code=Exit.DENIED))
    except OSError as error:
        leave(Failure(f"cannot read {path}", why=str(error)))
    findings = [finding for one in looked for finding in one.findings]
    first, *further = looked
    facts = _facts(first.directory)
    nodes = [{"node": one.node, **_facts(one.directory)} for one in further]
    format_ = Format.TABLE if options.output is None else chosen(options.output)
    if format_ is Format.TABLE:
        _show(facts)
        for node in nodes:
            answer("")
            _show(node)
    facts["nodes"] = nodes
    show_findings(
        findings, format_, facts, header=not options.no_header, is_one_line=format_ is Format.JSONL
    )
    if not findings:
        note("nothing odd was found; `ottla log verify` reads every byte")
    sys.stdout.flush()
    if any(finding.severity is Severity.ERROR for finding in findings):
        sys.exit(Exit.FAILED)


def _show(facts: dict[str, Any]) -> None:
    words = {name: name.removesuffix("_bytes").replace("_", " ") for name in facts}
    width = max(map(len, words.values()))
    for name, value in facts.items():
        answer(f"{words[name]:{width}}  {_shown(name, value)}")


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
