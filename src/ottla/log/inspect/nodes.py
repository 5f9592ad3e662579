"""A data directory with those of further nodes of the same host, which are in ``nodes/K`` below it.

Knows where the directories are; what is in one of them is ``examine``'s. The metadata of all of
them is in the directory above. Changes nothing. Used by the command line. Source: docs/nodes.md.
"""

from posixpath import abspath, basename, dirname
from typing import NamedTuple

from ottla.env.disk import Disk
from ottla.log.files.layout import META_PROPERTIES
from ottla.log.inspect.examine import METADATA_STORE, DataDirectory, examine
from ottla.log.inspect.findings import Finding, Severity

NODES_DIRECTORY = "nodes"


class Looked(NamedTuple):
    """The directory of one node, and what is odd about it."""

    node: int | None
    """The node's number; None: the directory is that of a single node."""
    directory: DataDirectory
    findings: list[Finding]

    def named(self, finding: Finding) -> Finding:
        """Return a finding with the node's number in what it says, where there are several."""
        if self.node is None or not _is_in(finding.path, self.directory.path):
            return finding
        return finding._replace(what=f"node {self.node}: {finding.what}")


def look(disk: Disk, path: str) -> list[Looked]:
    """Look at the data directory ``path`` and at those of further nodes below it.

    ``path`` may be that of a further node itself. The directory ``path`` comes first. Raises
    OSError when it cannot be listed.
    """
    above = _above(disk, path)
    if above is not None:
        directory, findings = examine(disk, path, metadata_in=above)
        return [_named(int(basename(abspath(path))), directory, findings)]
    directory, findings = examine(disk, path)
    numbers = _numbers(disk, path)
    if not numbers:
        return [Looked(None, directory, findings)]
    odd: list[Finding] = []
    further = [
        one for number in numbers if (one := _further(disk, directory, number, odd)) is not None
    ]
    first = _named(1, directory, findings)
    known = {(each.path, each.what) for each in findings}
    return [
        first._replace(findings=[*first.findings, *odd]),
        *(
            _named(number, found, [each for each in told if (each.path, each.what) not in known])
            for number, found, told in further
        ),
    ]


def _named(node: int, directory: DataDirectory, findings: list[Finding]) -> Looked:
    looked = Looked(node, directory, findings)
    return looked._replace(findings=list(map(looked.named, findings)))


def _further(
    disk: Disk, first: DataDirectory, number: int, odd: list[Finding]
) -> tuple[int, DataDirectory, list[Finding]] | None:
    """Examine the directory of a further node; None: it cannot be, as ``odd`` says then."""
    path = f"{first.path.rstrip('/')}/{NODES_DIRECTORY}/{number}"
    try:
        directory, findings = examine(
            disk, path, metadata_in=first.path, total_bytes_known=first.total_bytes
        )
    except OSError as error:
        fix = "let it be a directory that the user of the broker can read and write"
        what, why = f"node {number}: it cannot be read", error.strerror or str(error)
        odd.append(Finding(Severity.ERROR, path, what, why, fix))
        return None
    return number, directory, findings


def _above(disk: Disk, path: str) -> str | None:
    """Return the data directory that ``path`` is a further node's directory of; None: of none."""
    own = abspath(path)
    nodes = dirname(own)
    if basename(nodes) != NODES_DIRECTORY or not _is_number(basename(own)):
        return None
    if disk.exists(f"{own}/{METADATA_STORE}"):
        return None
    above = dirname(nodes)
    is_data = any(disk.exists(f"{above}/{name}") for name in (METADATA_STORE, META_PROPERTIES))
    return above if is_data else None


def _numbers(disk: Disk, path: str) -> list[int]:
    nodes = f"{path.rstrip('/')}/{NODES_DIRECTORY}"
    if not disk.is_directory(nodes):
        return []
    return sorted(int(name) for name in disk.list_directory(nodes) if _is_number(name))


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and str(int(name)) == name


def _is_in(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory.rstrip('/')}/")
