"""The short form of tests/campaigns/soak.py."""

import shutil

import pytest

from tests.etcd_server import needs_etcd
from tests.network_campaigns import report_of


@needs_etcd
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.skipif(shutil.which("ip") is None, reason="needs ip (apt-get install iproute2)")
def test_hosts_that_live_on_through_faults_break_no_promise():
    arguments = ["--rounds", "3", "--faults", "pause,kill,cut", "--pause-seconds", "4"]
    arguments += ["--life-minutes", "0.1", "--warm-up-minutes", "1", "--seed", "3"]
    report = report_of("soak.py", *arguments)
    assert sum(report["rounds"].values()) == 3
    assert report["others"]["transactions"]["committed"]
    assert report["others"]["short_lived_topics"]
    assert report["others"]["members"]
    assert {each["node"] for each in report["processes"]} >= {1, 2}
