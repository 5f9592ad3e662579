"""The short form of tests/campaigns/kill9.py: eight restarts with kill -9 under load."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

CAMPAIGN = Path(__file__).resolve().parent.parent / "campaigns" / "kill9.py"


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_kill9_under_load_loses_no_acknowledged_record(tmp_path):
    # A start may take longer here: the suite runs many brokers at once.
    arguments = ["--restarts", "8", "--max-start-seconds", "10", "--data", str(tmp_path / "data")]
    done = subprocess.run(
        [sys.executable, CAMPAIGN, *arguments],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.stdout.strip(), done.stderr
    report = json.loads(done.stdout)
    assert report["problems"] == []
    assert report["acknowledged"] > 100
    assert report["read"] >= report["acknowledged"]
    assert done.returncode == 0, done.stdout + done.stderr
