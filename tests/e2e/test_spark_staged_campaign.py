"""The short form of tests/campaigns/staged_batches.py: killed at each step of a large batch."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")

CAMPAIGN = Path(__file__).resolve().parent.parent / "campaigns" / "staged_batches.py"
SENT_STAGES = ("sent", "ending", "answered", "noted")
"""The stages from the first request on."""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("way", "victim", "stages"),
    [
        ("writeStream", "driver", "answered"),
        ("threads", "driver", "sent"),
        ("connect", "driver", "ending"),
        ("foreachBatch", "process", ",".join(("staging", "staged", *SENT_STAGES))),
    ],
)
def test_a_staged_batch_is_there_once_wherever_its_delivery_is_killed(
    target_kind, way, victim, stages
):
    """Killed at each stage where it is enough to kill a process.

    The start of a driver takes a minute on a busy machine: one is killed in each other way, at
    another of the stages from the first request on.
    """
    done = subprocess.run(
        [
            *(sys.executable, CAMPAIGN, "--target", target_kind),
            *("--way", way, "--victim", victim, "--stages", stages),
        ],
        capture_output=True,
        text=True,
        timeout=390,
    )
    assert done.stdout.strip(), done.stderr
    report = json.loads(done.stdout)
    assert report["problems"] == []
    assert (report["kills"], report["rows"]) == (stages.count(",") + 1, 16_000)
    assert report["files left by kills"] > 0
    assert report["aborted"] > 0 or "sent" not in stages  # EndTxn that has left may have come.
    assert set(SENT_STAGES) & set(stages.split(",")) <= report["windows hit"].keys()
    assert done.returncode == 0, done.stdout + done.stderr
