"""The main job, as the README's first command runs it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CARRIERS_AND_HOURS = 207

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.timeout(400),
]


def test_flights_from_broker_to_picture(tmp_path):
    pd = pytest.importorskip("pandas")
    command = [sys.executable, "-m", "examples.flights.run", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    story = done.stderr + done.stdout
    assert done.returncode == 0, story
    assert story.count("killed (kill -9)") == 2
    assert story.count("every partition: same count, same digest") == 1
    assert "none twice" in story
    assert "skipped" not in story
    table = pd.read_parquet(tmp_path / "delays.parquet")
    assert len(table.groupby(["carrier", "hour"])) == CARRIERS_AND_HOURS
    assert (tmp_path / "delays.png").read_bytes().startswith(b"\x89PNG")
