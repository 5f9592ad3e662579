"""The short form of tests/campaigns/mixed_groups.py: other people's members in one group."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

CAMPAIGN = Path(__file__).resolve().parent.parent / "campaigns" / "mixed_groups.py"


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_members_of_many_makers_own_each_partition_once():
    arguments = ["--members", "6", "--partitions", "12", "--seconds", "8", "--without", "java"]
    arguments += ["--assignor", "range", "--assignor", "consumer", "--broker-seconds", "4"]
    done = subprocess.run(
        [sys.executable, CAMPAIGN, *arguments, "--pause", "0.8"],
        capture_output=True,
        text=True,
        timeout=230,
    )
    assert done.stdout.strip(), done.stderr
    report = json.loads(done.stdout)
    problems = [report["problems"], *(each["problems"] for each in report["groups"].values())]
    assert not any(problems), problems
    assert report["broker killed"] >= 1
    for group in report["groups"].values():
        assert group["read"] == report["written"] > 100
        assert group["generation"] > 1
    assert done.returncode == 0, done.stdout + done.stderr
