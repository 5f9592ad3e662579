"""The short form of tests/campaigns/groups.py: a group whose members and broker come and go."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

CAMPAIGN = Path(__file__).resolve().parent.parent / "campaigns" / "groups.py"


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_every_record_is_read_and_every_partition_owned_once():
    arguments = ["--members", "8", "--partitions", "16", "--seconds", "20"]
    done = subprocess.run(
        [sys.executable, CAMPAIGN, *arguments],
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.stdout.strip(), done.stderr
    report = json.loads(done.stdout)
    assert report["problems"] == []
    assert report["read"] >= report["sent"] > 100
    assert report["generations"] > 1
    assert done.returncode == 0, done.stdout + done.stderr
