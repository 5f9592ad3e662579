"""The short form of tests/campaigns/spark_exactly_once.py: a topic copied under fire."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")

CAMPAIGN = Path(__file__).resolve().parent.parent / "campaigns" / "spark_exactly_once.py"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(240)
def test_every_row_is_copied_once_whoever_is_killed(target_kind):
    arguments = ["--target", target_kind, "--rows", "60000", "--kills", "3", "--batch-rows", "6000"]
    done = subprocess.run(
        [sys.executable, CAMPAIGN, *arguments], capture_output=True, text=True, timeout=230
    )
    assert done.stdout.strip(), done.stderr
    report = json.loads(done.stdout)
    assert report["problems"] == []
    assert report["committed"] == report["rows"] >= 60_000
    assert report["kills"] == {"driver": 1, "worker": 1, "broker": 1}
    assert done.returncode == 0, done.stdout + done.stderr
