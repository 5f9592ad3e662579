"""``ottla log``: what a data directory's files hold (dump), and whether they are right (verify).

Owns the words and columns. Reads files directly, talks to no broker, changes nothing.
"""

import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ottla.cli.arguments import Commands, add_command, add_group, add_output_option
from ottla.cli.failure import WHY_INDENT, Exit, Failure, leave
from ottla.cli.output import (
    FORMATS,
    Format,
    RowWriter,
    chosen,
    counted,
    note,
    progress,
    utc_text,
    write_object,
)
from ottla.cli.record_json import bytes_json, headers_json
from ottla.cli.terminal import width
from ottla.config.human import size_text

if TYPE_CHECKING:
    from ottla.env.disk import Disk
    from ottla.log.inspect.dump import DumpedBatch
    from ottla.log.inspect.findings import Finding
    from ottla.log.inspect.nodes import Looked
    from ottla.log.inspect.verify import Claims, Outcome

FINDING_COLUMNS = ("severity", "path", "position", "what", "why", "fix")
SHORT_COLUMNS = ("position", "base_offset", "last_offset", "record_count", "codec", "is_valid")
RECORD_COLUMNS = ("offset", "timestamp", "sequence", "key", "value", "headers")


def register(commands: Commands) -> None:
    """Declare the commands."""
    about = "Look into the files of a data directory. A broker may run; nothing is changed."
    verbs = add_group(commands, "log", about)
    about = (
        "Print what files hold: .log, .index, .timeindex, .txnindex, .snapshot, checkpoints;"
        " of a partition directory, its log files."
    )
    parser = add_command(verbs, "dump", about, dump)
    parser.add_argument("paths", metavar="PATH", nargs="+")
    parser.add_argument(
        "--records", "--deep", action="store_true", help="the records of each batch, too"
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="check the records in the batches, too; exit with 1 if anything is bad",
    )
    add_output_option(parser, *FORMATS)

    about = "Verify a data directory, or one partition's: every batch, index, snapshot, checkpoint."
    parser = add_command(verbs, "verify", about, verify)
    parser.add_argument("directory", metavar="DIR")
    parser.add_argument(
        "--deep", action="store_true", help="the records in the batches, too; slower"
    )
    add_output_option(parser, *FORMATS)


# dump ---------------------------------------------------------------------------------------------


def dump(options: Namespace) -> None:
    """Print the files one after the other."""
    format_ = chosen(options.output)
    bad = 0
    try:
        with RowWriter(format_, header=not options.no_header) as writer:
            for path in _files(options.paths):
                note(path)
                bad += _dump_one(path, writer, options)
        sys.stdout.flush()
    except OSError as error:
        _leave_for(error)
    if bad:
        what = f"{bad} of the things printed are bad"
        if options.verify:
            leave(Failure(what, why="see is_valid and why", code=Exit.FAILED))
        note(what)


def _files(paths: list[str]) -> Iterator[str]:
    from ottla.log.inspect.dump import files_of_partition

    disk = _disk()
    for path in paths:
        if not disk.exists(path):
            leave(Failure(f"there is no {path}", code=Exit.NOT_FOUND))
        if not disk.is_directory(path):
            yield path
            continue
        found = files_of_partition(disk, path.rstrip("/"))
        if not found:
            why = "it holds no .log files itself"
            leave(Failure(f"{path} is not a partition's directory", why=why, code=Exit.USAGE))
        yield from found


def _dump_one(path: str, writer: RowWriter, options: Namespace) -> int:
    """Print one file; return how much of it is bad."""
    from ottla.log.inspect.dump import DumpedBatch, Unreadable, dump_file, dump_log

    disk = _disk()
    is_deep = options.verify and path.endswith(".log")
    rows = dump_log(disk, path, deep=True) if is_deep else dump_file(disk, path)
    if rows is None:
        fix = "give it the name that it has in a data directory"
        leave(Failure(f"no known kind of file: {path}", fix=fix, code=Exit.USAGE))
    bad = 0
    is_empty = True
    for row in rows:
        is_empty = False
        if isinstance(row, Unreadable):
            bad += 1
            note(f"error: {path} at byte {row.position}: {row.why}; {row.size_bytes} bytes unread")
            writer.write({"unreadable": row._asdict()}, ("unreadable",))
        elif isinstance(row, DumpedBatch):
            bad += not row.is_valid
            _write_batch(disk, path, row, writer, with_records=options.records)
        else:
            shown = {key: value for key, value in row._asdict().items() if value is not None}
            writer.write(shown, tuple(shown))
    if is_empty:
        note("  nothing is in it")
    return bad


def _write_batch(
    disk: "Disk", path: str, batch: "DumpedBatch", writer: RowWriter, *, with_records: bool
) -> None:
    facts: dict[str, Any] = batch._asdict()
    facts["crc"] = f"{batch.crc:08x}"
    if writer.is_table:
        writer.line(_batch_line(batch))
    elif not with_records:
        writer.write(facts, tuple(facts))
        return
    if with_records:
        records = _records(disk, path, batch)
        if writer.is_table:
            for record in records:
                writer.line("  " + _record_line(record))
        elif writer.is_flat:
            for record in records:
                headers = [
                    f"{name}={'' if text is None else text}" for name, text in record["headers"]
                ]
                writer.write({**record, "headers": headers}, RECORD_COLUMNS)
        else:
            writer.write({**facts, "records": records}, ())


def _batch_line(batch: "DumpedBatch") -> str:
    parts = [
        f"{batch.base_offset}-{batch.last_offset}",
        f"{batch.record_count} records",
        f"byte {batch.position}",
        size_text(batch.size_bytes),
        batch.codec,
        f"crc {batch.crc:08x} ok" if batch.is_valid else f"BAD {batch.why_invalid}",
        f"epoch {batch.leader_epoch}",
        _time_text(batch.timestamp_type, batch.max_timestamp),
    ]
    if batch.magic < 2:
        parts.append(f"magic {batch.magic}")
    if batch.producer_id >= 0:
        sequences = f"seq {batch.base_sequence}-{batch.last_sequence}"
        parts.append(f"producer {batch.producer_id} epoch {batch.producer_epoch} {sequences}")
    if batch.is_transactional:
        parts.append("transactional")
    if batch.is_control:
        parts.append("control")
    if batch.delete_horizon_ms is not None:
        parts.append(f"delete horizon {batch.delete_horizon_ms}")
    return "  ".join(parts)


def _time_text(timestamp_type: str, timestamp: int) -> str:
    return "no time" if timestamp < 0 else f"{timestamp_type} {utc_text(timestamp)}"


def _records(disk: "Disk", path: str, batch: "DumpedBatch") -> list[dict[str, Any]]:
    from ottla.log.inspect.dump import Unreadable, records_of
    from ottla.records.control import control_type_of

    records = records_of(disk, path, batch)
    if isinstance(records, Unreadable):
        note(f"error: {path} at byte {records.position}: {records.why}")
        return []
    shown: list[dict[str, Any]] = []
    for ordinal, record in enumerate(records):
        sequence = -1 if batch.base_sequence < 0 else (batch.base_sequence + ordinal) & 0x7FFFFFFF
        facts: dict[str, Any] = {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "sequence": sequence,
            "key": bytes_json(record.key),
            "value": bytes_json(record.value),
            "headers": headers_json(record.headers),
        }
        if batch.is_control:
            kind = control_type_of(record.key)
            facts["control"] = "unknown" if kind is None else kind.name.lower()
        shown.append(facts)
    return shown


def _record_line(record: dict[str, Any]) -> str:
    parts = [f"{record['offset']}", f"t {record['timestamp']}"]
    if "control" in record:
        return "  ".join([*parts, record["control"]])
    parts.extend(f"{name} {record[name]!r}" for name in ("key", "value"))
    if record["headers"]:
        parts.append(f"headers {record['headers']!r}")
    return "  ".join(parts)


# verify -------------------------------------------------------------------------------------------


class _Sums:
    """What was seen on the way through a data directory."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.counts = dict.fromkeys(("partitions", "segments", "batches", "records", "bytes"), 0)

    def count(self, severity: str) -> int:
        return sum(finding.severity.value == severity for finding in self.findings)


def verify(options: Namespace) -> None:
    """Read everything; say what is wrong. Exits with 1 when records are lost or unreadable."""
    from ottla.log.inspect.findings import Severity

    format_ = chosen(options.output)
    sums = _Sums()
    try:
        for one, directory, claims in _partitions_in(options.directory.rstrip("/") or "/", sums):
            _verify_partition(one, directory, claims, sums, deep=options.deep)
    except OSError as error:
        _leave_for(error)
    errors, warnings = sums.count("error"), sums.count("warning")
    summary = {**sums.counts, "errors": errors, "warnings": warnings}
    show_findings(sums.findings, format_, summary, header=not options.no_header)
    counts = sums.counts
    note(
        f"{counted(counts['partitions'], 'partition')}, {counted(counts['segments'], 'segment')},"
        f" {counts['batches']:,} batches, {counted(counts['records'], 'record')},"
        f" {size_text(counts['bytes'])}: {counted(errors, 'error')}, "
        f"{counted(warnings, 'warning')}"
    )
    if any(finding.severity is Severity.ERROR for finding in sums.findings):
        sys.stdout.flush()
        sys.exit(Exit.FAILED)


def _partitions_in(path: str, sums: _Sums) -> "Iterator[tuple[Looked, str, Claims]]":
    """Yield each partition directory at or in ``path``, its node's before it, its claims behind."""
    from posixpath import abspath, basename, dirname

    from ottla.log.files.layout import parse_partition_directory
    from ottla.log.inspect.dump import files_of_partition
    from ottla.log.inspect.nodes import look

    disk = _disk()
    if not disk.is_directory(path):
        leave(Failure(f"there is no directory {path}", code=Exit.NOT_FOUND))
    only = parse_partition_directory(basename(abspath(path)))
    is_partition = only is not None and bool(files_of_partition(disk, path))
    looked = look(disk, dirname(abspath(path)) if is_partition else path)
    if is_partition:
        looked = looked[:1]
    for one in looked:
        if one.directory.locked_by is not None:
            _note_running(one)
        if not is_partition:
            sums.findings.extend(each for each in one.findings if each.severity.value != "note")
    is_data = any(
        one.directory.kind not in ("unknown", "empty") or one.directory.partitions for one in looked
    )
    if not is_partition and not is_data:
        why = "no meta.properties and no partitions in it"
        leave(Failure(f"{path} is not a data directory", why=why, code=Exit.USAGE))
    for one in looked:
        for partition in one.directory.partitions:
            if not is_partition or partition.topic_partition == only:
                claims = one.directory.claims_of(partition.topic_partition)
                yield one, partition.directory, claims


def _note_running(looked: "Looked") -> None:
    directory = looked.directory
    who = f" (process {directory.locked_by})" if directory.locked_by else ""
    where = "here" if looked.node is None else f"in {directory.path} (node {looked.node})"
    note(f"a broker is running {where}{who}: what it writes meanwhile is not looked at")


def _verify_partition(
    looked: "Looked", directory: str, claims: "Claims", sums: _Sums, *, deep: bool
) -> None:
    from ottla.log.inspect.findings import Finding
    from ottla.log.inspect.verify import verify_partition

    sums.counts["partitions"] += 1
    known = {(finding.path, finding.what) for finding in sums.findings}
    for outcome in verify_partition(_disk(), directory, claims, deep=deep):
        _add(looked.named(outcome) if isinstance(outcome, Finding) else outcome, sums, known)
    _progress(f"{sums.counts['partitions']} partitions, {size_text(sums.counts['bytes'])}")


def _add(outcome: "Outcome", sums: _Sums, known: set[tuple[str, str]]) -> None:
    from ottla.log.inspect.findings import Finding

    if isinstance(outcome, Finding):
        if (outcome.path, outcome.what) not in known:
            sums.findings.append(outcome)
        return
    sums.counts["segments"] += 1
    sums.counts["batches"] += outcome.batch_count
    sums.counts["records"] += outcome.record_count
    sums.counts["bytes"] += outcome.size_bytes
    _progress(f"{outcome.path}  {size_text(sums.counts['bytes'])}")


def _progress(text: str) -> None:
    """Show where it is, on a terminal only; the line is overwritten by the next."""
    progress(text[-width() + 1 :])


def show_findings(
    findings: "list[Finding]",
    format_: Format,
    summary: dict[str, Any],
    *,
    header: bool = True,
    is_one_line: bool = False,
) -> None:
    """Print findings; as one object with ``summary`` in JSON and YAML, and JSONL of one line."""
    progress("")
    rows: list[dict[str, Any]] = [
        {**finding._asdict(), "severity": finding.severity.value} for finding in findings
    ]
    if format_ in (Format.JSON, Format.YAML) or is_one_line:
        write_object({**summary, "findings": rows}, format_)
        return
    with RowWriter(format_, header=header) as writer:
        for row in rows:
            if writer.is_table:
                for line in _finding_lines(row):
                    writer.line(line, indent=None if "fix: ottla " in line else WHY_INDENT)
            else:
                writer.write(row, FINDING_COLUMNS)


def _finding_lines(row: dict[str, Any]) -> list[str]:
    where = row["path"] if row["position"] is None else f"{row['path']} at byte {row['position']}"
    lines = [f"{row['severity']}: {where}", f"  {row['what']}"]
    lines += [f"  {name}: {row[name]}" for name in ("why", "fix") if row[name]]
    return lines


def _disk() -> "Disk":
    from ottla.env.real_disk import RealDisk

    return RealDisk()


def _leave_for(error: OSError) -> None:
    if isinstance(error, BrokenPipeError):
        raise error
    code = Exit.DENIED if isinstance(error, PermissionError) else Exit.FAILED
    leave(Failure(f"cannot read {error.filename or 'it'}", why=error.strerror or "", code=code))
