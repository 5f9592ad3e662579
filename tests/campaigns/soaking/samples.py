"""What processes use over a long time, and whether that grows.

Owns the samples of each process of each node, as /proc and the data directory tell them, and the
judgement: a line by least squares through what a process held after it had warmed up. Linux only.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from statistics import StatisticsError, linear_regression
from typing import Any, NamedTuple

from tools.peer import cpu_seconds

JUDGED = "private_kib"


class Sample(NamedTuple):
    """What one process used at one moment."""

    seconds: float
    """Since the campaign began."""
    rss_kib: int
    private_kib: int
    """Pages that nobody shares (USS): what the end of the process would give back."""
    anonymous_kib: int
    """Pages of no file: private without what is mapped of indexes."""
    threads: int
    descriptors: int
    cpu_seconds: float
    data_kib: int
    """Space that its data directory takes on the disk."""
    files: int


def sample(pid: int, data: Path, seconds: float) -> Sample:
    """Look at a process and its data. Raises OSError when it is over."""
    process = Path(f"/proc/{pid}")
    held = {}
    for line in (process / "smaps_rollup").read_text().splitlines()[1:]:
        name, _, amount = line.partition(":")
        held[name] = int(amount.split()[0])
    blocks = files = 0
    for place, _, names in os.walk(data):
        for name in names:
            with suppress(FileNotFoundError):  # Deleted meanwhile.
                blocks += Path(place, name).stat().st_blocks
                files += 1
    return Sample(
        round(seconds, 1),
        held["Rss"],
        held["Private_Clean"] + held["Private_Dirty"],
        held["Anonymous"],
        len(os.listdir(process / "task")),
        len(os.listdir(process / "fd")),
        round(cpu_seconds(pid), 2),
        blocks // 2,
        files,
    )


def slope_per_hour(samples: Sequence[Sample], field: str, *, warm_up_seconds: float) -> float:
    """Return how much a field rises per hour, without a process's first seconds.

    0 when there are too few samples for a line.
    """
    begin = samples[0].seconds + warm_up_seconds if samples else 0.0
    warm = [each for each in samples if each.seconds >= begin]
    if len(warm) < 3:
        return 0.0
    with suppress(StatisticsError):  # All at one moment.
        hours = [each.seconds / 3600 for each in warm]
        return linear_regression(hours, [getattr(each, field) for each in warm]).slope
    return 0.0


class Lives:
    """The samples of all processes."""

    def __init__(self, *, life_minutes: float, warm_up_minutes: float) -> None:
        """``life_minutes``: a process that was seen for less is not judged."""
        self._life_seconds = life_minutes * 60
        self._warm_up_seconds = warm_up_minutes * 60
        self._samples: dict[tuple[int, int], list[Sample]] = {}
        """Use: by node and process id, in the order of time."""

    def add(self, node: int, pid: int, taken: Sample) -> None:
        """Note a sample of a node's process."""
        self._samples.setdefault((node, pid), []).append(taken)

    def problems(self, mb_per_hour: float) -> list[str]:
        """Return which of the long lives grow by more than that."""
        wrong = []
        for (node, pid), samples in self._long().items():
            grows = self._slope(samples, JUDGED) * 1024 / 1e6
            if grows > mb_per_hour:
                wrong.append(f"node {node}, process {pid}: {grows:.1f} MB more every hour")
        return wrong

    def report(self) -> dict[str, Any]:
        """Return figures and series of the long lives, and what the short ones held at most."""
        long = self._long()
        short = [each for life, each in self._samples.items() if life not in long]
        return {
            "processes": [
                {
                    "node": node,
                    "pid": pid,
                    "minutes": round(_seconds(samples) / 60, 1),
                    **{field: self._figures(samples, field) for field in Sample._fields[1:]},
                    "series": [",".join(Sample._fields), *(_row(each) for each in samples)],
                }
                for (node, pid), samples in long.items()
            ],
            "short_lives": {
                "count": len(short),
                f"{JUDGED}_max": max(
                    (getattr(each, JUDGED) for each in chain.from_iterable(short)), default=0
                ),
            },
        }

    def _long(self) -> dict[tuple[int, int], list[Sample]]:
        return {
            life: samples
            for life, samples in self._samples.items()
            if _seconds(samples) >= self._life_seconds
        }

    def _figures(self, samples: Sequence[Sample], field: str) -> dict[str, float]:
        values = [getattr(each, field) for each in samples]
        slope = round(self._slope(samples, field), 1)
        return {"first": values[0], "last": values[-1], "max": max(values), "per_hour": slope}

    def _slope(self, samples: Sequence[Sample], field: str) -> float:
        return slope_per_hour(samples, field, warm_up_seconds=self._warm_up_seconds)


def _seconds(samples: Sequence[Sample]) -> float:
    return samples[-1].seconds - samples[0].seconds


def _row(each: Sample) -> str:
    return ",".join(str(value) for value in each)
