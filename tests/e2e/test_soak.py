"""The short form of tests/campaigns/soak.py."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.etcd_server import needs_etcd

CAMPAIGN = Path(__file__).resolve().parent.parent / "campaigns" / "soak.py"


@needs_etcd
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.skipif(shutil.which("ip") is None, reason="needs ip (apt-get install iproute2)")
def test_hosts_that_live_on_through_faults_break_no_promise():
    arguments = ["--rounds", "3", "--faults", "pause,kill,cut", "--pause-seconds", "4"]
    arguments += ["--life-minutes", "0.1", "--warm-up-minutes", "1", "--seed", "3"]
    done = subprocess.run(
        [sys.executable, CAMPAIGN, *arguments], capture_output=True, text=True, timeout=230
    )
    if done.returncode == 2:
        pytest.skip(done.stderr.strip())
    assert done.stdout.strip(), done.stderr
    report = json.loads(done.stdout)
    assert not report["problems"], done.stderr
    assert sum(report["rounds"].values()) == 3
    assert report["seen"] == report["acknowledged"] > 0
    assert report["others"]["transactions"]["committed"]
    assert report["others"]["short_lived_topics"]
    assert report["others"]["members"]
    assert {each["node"] for each in report["processes"]} >= {1, 2}
    assert done.returncode == 0
