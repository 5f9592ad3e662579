"""The short form of tests/campaigns/administration.py: topics come and go amid crashes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

CAMPAIGN = Path(__file__).resolve().parent.parent / "campaigns" / "administration.py"


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_administration_under_crashes_breaks_no_promise():
    arguments = ["--rounds", "6", "--rounds-per-life", "2", "--lanes", "3", "--seed", "13"]
    done = subprocess.run(
        [sys.executable, CAMPAIGN, *arguments, "--load-seconds", "2"],
        capture_output=True,
        text=True,
        timeout=230,
    )
    assert done.stdout.strip(), done.stderr
    report = json.loads(done.stdout)
    assert report["problems"] == []
    assert report["rounds"] == 6
    assert report["counts"]["records acknowledged"] > 100
    assert report["counts"]["topics deleted"] >= 3
    assert report["records_checked"] > 50
    assert done.returncode == 0, done.stdout + done.stderr
