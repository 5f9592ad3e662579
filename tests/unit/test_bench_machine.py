"""The benchmarks' account of their machine: memory that is backed, neighbours that are seen."""

import argparse
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from bench import machine
from bench.scenarios import scenarios
from bench.tables import AIMED, ROWS, Tables

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="benchmarks need Linux")


def options(*given):
    parser = argparse.ArgumentParser()
    machine.add_options(parser)
    return parser.parse_args(given)


def test_memory_is_backed_and_the_report_says_so():
    assert "backed first" in machine.back_memory(options("--memory", "0.01"))
    assert "not backed" in machine.back_memory(options("--memory", "0"))


def test_our_own_children_are_no_neighbours():
    before = machine.times()
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    child = subprocess.Popen([sys.executable, "-c", burn + "\ninput()"], stdin=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 20
        while machine.times().ours - before.ours < 20 and time.monotonic() < deadline:
            pass
        assert machine.times().ours - before.ours >= 20
    finally:
        child.kill()
        child.communicate()
    assert 0 <= machine.Neighbours().share() <= 1


def test_every_row_of_the_tables_is_a_scenario():
    assert set(ROWS) <= {one.name for one in scenarios((1, 10, 100), 5)}
    assert set(AIMED) <= set(ROWS)


def run_of(rate, cpu, *, disturbed=False):
    return SimpleNamespace(
        requests_per_second=rate,
        broker_us_per_request=cpu,
        megabytes_per_second=1.0,
        broker_seconds_per_gigabyte=1.0,
        is_disturbed=disturbed,
    )


def test_rows_have_ratios_and_say_what_is_missed():
    names = ("kafka", "kafka synced", "ottla durable")
    tables = Tables(dict.fromkeys(names, (1.0, 50_000_000)))
    by_name = {one.name: one for one in scenarios((1, 10, 100), 5)}
    spread = by_name["produce 1 record to each of 100 partitions"]
    runs = (
        [run_of(1000, 500)],
        [run_of(100, 900)],
        [run_of(500, 1500), run_of(1, 9, disturbed=True)],
    )
    tables.add(spread, dict(zip(names, runs, strict=True)))
    text = tables.text()
    assert "500/s, 1.5 ms (1 of 2 runs disturbed)" in text
    assert "CPU <= 2: no, 3.00; synced >= 3: yes" in text
    assert "0.50, 3.00" in text
