"""The rows that README.md and bench/README.md show, and what was promised of them."""

import statistics
from collections.abc import Mapping, Sequence

from bench.load import Measure
from bench.scenarios import CLIENTS, IN_TURN, PARTITIONS, Scenario

SPREAD = f"produce 1 record to each of {PARTITIONS} partitions"
COMMIT = f"commit 1 offset, {CLIENTS} clients"
FETCHES = ("fetch 64 kB, 1 connection", "fetch 1 MB, 1 connection", "fetch 8 MB, 1 connection")
ROWS = (
    *(
        f"produce 1 record, {count}"
        for count in ("1 connection", "10 connections", "100 connections")
    ),
    *(f"produce 16 kB, {count}" for count in ("1 connection", "10 connections")),
    *("produce 1 MB, 1 connection", SPREAD),
    *(f"{IN_TURN}, {count} connections" for count in (10, 100)),
    *(COMMIT, *FETCHES),
)
KAFKA, SYNCED, DURABLE = "kafka", "kafka synced", "ottla durable"
CPU_AIMS = {SPREAD: 2.0}
"""The most that a durable request may cost, in Kafka's CPU without syncing."""
THROUGHPUT_AIMS = {
    **dict.fromkeys((name for name in ROWS if "1 record, 10" in name or IN_TURN in name), 1.0),
    COMMIT: 1.0,
}
"""The least, durable, in Kafka's throughput without syncing."""
AIMED = (*CPU_AIMS, *THROUGHPUT_AIMS)
SYNCED_AIM = 3.0
"""The least, durable, in the throughput of a Kafka that syncs as well."""


def quiet(runs: Sequence[Measure]) -> Sequence[Measure]:
    """Return the runs that count: those without noisy neighbours, if there are any."""
    return [run for run in runs if not run.is_disturbed] or runs


def median(runs: Sequence[Measure], field: str) -> float:
    """Return a figure's median over the runs that count."""
    return statistics.median(getattr(run, field) for run in quiet(runs))


class Tables:
    """Gathers what was measured; ``text`` is the Markdown."""

    def __init__(self, started: Mapping[str, tuple[float, int]]) -> None:
        """Take of each broker the seconds to its first answer, and its idle memory in bytes."""
        self._names = list(started)
        self._rows = [
            self._row(
                "start to the first answer; idle memory",
                [f"{seconds:.2f} s; {memory / 1e6:.0f} MB" for seconds, memory in started.values()],
            )
        ]
        self._ratios: list[str] = []

    def _row(self, first: str, cells: Sequence[str]) -> str:
        return f"| {' | '.join([first, *cells])} |"

    def add(self, scenario: Scenario, found: Mapping[str, Sequence[Measure]]) -> None:
        """Take the runs of one scenario, by broker."""
        more = f", {scenario.depth} in flight" if scenario.depth > 1 else ""
        name = f"{scenario.name}{more}"
        self._rows.append(self._row(name, [_cell(scenario, found[each]) for each in self._names]))
        if KAFKA in found:
            self._ratios.append(self._row(name, _ratios(scenario, found, self._names)))

    def text(self) -> str:
        """Return the two tables."""
        heads = ["", *self._names]
        compared = [name for name in self._names if name != KAFKA]
        return "\n".join(
            [
                "",
                *_head(heads),
                *self._rows,
                "",
                "Throughput over Kafka's, CPU per request over Kafka's; then the aims.",
                "",
                *_head(["", *compared, "durable over Kafka synced", "aims"]),
                *self._ratios,
            ]
        )


def _head(cells: Sequence[str]) -> list[str]:
    return [f"| {' | '.join(cells)} |", f"|{' --- |' * len(cells)}"]


def _cell(scenario: Scenario, runs: Sequence[Measure]) -> str:
    disturbed = sum(run.is_disturbed for run in runs)
    mark = f" ({disturbed} of {len(runs)} runs disturbed)" if disturbed else ""
    cpu = median(runs, "broker_us_per_request")
    if scenario.kind == "fetch":
        speed = f"{median(runs, 'megabytes_per_second'):,.0f} MB/s"
        return f"{speed}, {median(runs, 'broker_seconds_per_gigabyte'):.2f} s/GB{mark}"
    spent = f"{cpu:,.0f} us" if cpu < 1000 else f"{cpu / 1000:.1f} ms"
    return f"{median(runs, 'requests_per_second'):,.0f}/s, {spent}{mark}"


def _ratios(
    scenario: Scenario, found: Mapping[str, Sequence[Measure]], names: Sequence[str]
) -> list[str]:
    def over(name: str, other: str, field: str) -> float:
        base = median(found[other], field)
        return median(found[name], field) / base if base else float("nan")

    cells = [
        f"{over(name, KAFKA, 'requests_per_second'):.2f}, "
        f"{over(name, KAFKA, 'broker_us_per_request'):.2f}"
        for name in names
        if name != KAFKA
    ]
    verdicts = []
    if DURABLE in found:
        if scenario.name in CPU_AIMS:
            verdicts.append(("CPU <=", over(DURABLE, KAFKA, "broker_us_per_request"), CPU_AIMS))
        if scenario.name in THROUGHPUT_AIMS:
            verdicts.append((">=", over(DURABLE, KAFKA, "requests_per_second"), THROUGHPUT_AIMS))
    texts = [
        f"{sign} {aims[scenario.name]:g}: "
        + ("yes" if (value <= aims[scenario.name]) == (sign != ">=") else f"no, {value:.2f}")
        for sign, value, aims in verdicts
    ]
    if DURABLE in found and SYNCED in found:
        fair = over(DURABLE, SYNCED, "requests_per_second")
        cells.append(f"{fair:.1f}")
        if scenario.kind != "fetch":
            texts.append(f"synced >= {SYNCED_AIM:g}: {'yes' if fair >= SYNCED_AIM else 'no'}")
    else:
        cells.append("")
    return [*cells, "; ".join(texts)]
