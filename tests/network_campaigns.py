"""Runs the short forms of campaigns on network namespaces, and judges what they all promise."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

CAMPAIGNS = Path(__file__).resolve().parent / "campaigns"
SECONDS = 230


def report_of(campaign, *arguments):
    """Run a campaign and return its report, which names no problem; skip where it cannot run."""
    command = [sys.executable, CAMPAIGNS / campaign, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode == 2:
        pytest.skip(done.stderr.strip())
    assert done.stdout.strip(), done.stderr
    report = json.loads(done.stdout)
    assert not report["problems"], done.stderr
    assert report["seen"] == report["acknowledged"] > 0
    assert done.returncode == 0
    return report
