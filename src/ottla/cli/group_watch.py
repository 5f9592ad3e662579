"""``ottla group watch``: a group's lag over time, how fast it reads, and when it has read all.

Owns how rates follow from looks at the group; takes the looks with ``group``.
"""

import asyncio
import sys
from argparse import Namespace
from collections import deque
from typing import NamedTuple

from ottla.cli import output as out
from ottla.cli.failure import Exit, Failure
from ottla.cli.group import described, existing_group
from ottla.cli.output import Row, RowWriter, age_text, counted, utc_text
from ottla.cli.run import run
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.groups import Groups
from ottla.client.wire.group_description import GroupDescription
from ottla.config.human import parse_duration_ms
from ottla.env.clock import SystemClock

COLUMNS = ("time", "state", "members", "lag", "read_per_s", "written_per_s", "empty_in")
LOOKS_KEPT = 10
"""Rates are those of the last so many looks."""
EVERY_MIN_MS = 100


class Look(NamedTuple):
    """A group at a moment: sums over the partitions whose lag is known."""

    seconds: float
    lag: int
    committed: int
    end: int
    partitions: frozenset[tuple[str, int]]


class Pace(NamedTuple):
    """Records a second, by offsets; ``empty_ms``: until the lag is 0 at this pace, None: never."""

    read: float | None
    written: float | None
    empty_ms: int | None


def watch(options: Namespace) -> None:
    """Watch a group."""

    async def command(cluster: Cluster) -> None:
        every_ms = _every_ms(options.every)
        clock, groups = SystemClock(), Groups(cluster)
        looks: deque[Look] = deque(maxlen=LOOKS_KEPT)
        left = options.count
        with RowWriter(out.chosen(options.output), header=not options.no_header) as writer:
            while True:
                group, rows = await described(cluster, await existing_group(groups, options.group))
                looks.append(look_at(rows, clock.monotonic()))
                row = row_of(group, looks[-1], pace(looks), clock.wall_ms())
                if writer.is_table:
                    writer.line(line_of(row))
                else:
                    writer.write(row, COLUMNS)
                sys.stdout.flush()
                left = None if left is None else left - 1
                has_read_all = looks[-1].lag == 0 and looks[-1].partitions
                if left == 0 or (options.until_empty and has_read_all):
                    return
                await asyncio.sleep(every_ms / 1000)

    run(options, command)


def look_at(rows: list[Row], seconds: float) -> Look:
    """Return the sums over the rows of ``group.described``."""
    lag = committed = end = 0
    partitions = set()
    for row in rows:
        if isinstance(row["lag"], int):
            lag += row["lag"]
            committed += _number(row["committed"])
            end += _number(row["end"])
            partitions.add((str(row["topic"]), _number(row["partition"])))
    return Look(seconds, lag, committed, end, frozenset(partitions))


def pace(looks: "deque[Look]") -> Pace:
    """Return how fast a group reads, and its partitions are written, over these looks."""
    last = looks[-1]
    since = next(each for each in looks if each.partitions == last.partitions)
    elapsed = last.seconds - since.seconds
    empty_ms = 0 if last.lag == 0 else None
    if elapsed <= 0:
        return Pace(None, None, empty_ms)
    read = (last.committed - since.committed) / elapsed
    written = (last.end - since.end) / elapsed
    if last.lag and read > written:
        empty_ms = round(1000 * last.lag / (read - written))
    return Pace(read, written, empty_ms)


def row_of(group: GroupDescription, look: Look, at: Pace, now_ms: int) -> Row:
    """Return the row about one look."""
    return {
        "time": utc_text(now_ms),
        "group": group.group,
        "state": group.state,
        "members": len(group.members),
        "lag": look.lag,
        "read_per_s": None if at.read is None else round(at.read),
        "written_per_s": None if at.written is None else round(at.written),
        "empty_in": None if at.empty_ms is None else age_text(at.empty_ms),
        "empty_in_ms": at.empty_ms,
    }


def line_of(row: Row) -> str:
    """Return the row as a person reads it, below those of the looks before."""
    clock = str(row["time"])[11:19]
    parts = [
        f"{clock}Z",
        str(row["state"]),
        counted(_number(row["members"]), "member"),
        f"lag {row['lag']:,}",
    ]
    if row["read_per_s"] is not None:
        parts += [f"read {row['read_per_s']:,}/s", f"written {row['written_per_s']:,}/s"]
    if row["empty_in_ms"]:
        parts.append(f"empty in {row['empty_in']}")
    return "  ".join(parts)


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _every_ms(text: str) -> int:
    try:
        every_ms = parse_duration_ms(text)
    except ValueError as error:
        raise Failure(f"--every {text}: {error}", fix="2s, 500ms", code=Exit.USAGE) from error
    return max(every_ms, EVERY_MIN_MS)
