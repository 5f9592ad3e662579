"""What the README shows, works: its Python blocks run as printed, in their order."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "127.0.0.1:9092"

BLOCKS = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
CLIENT_BLOCKS = [block for block in BLOCKS if "spark" not in block]
SPARK_BLOCKS = [block for block in BLOCKS if "spark" in block]


def run(code, bootstrap):
    """Run a block in a fresh interpreter, with the broker's address in place of the printed one."""
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", code.replace(ADDRESS, bootstrap)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{code}\n{done.stderr}"
    return done.stdout


def test_there_is_something_to_try():
    assert len(CLIENT_BLOCKS) == 3
    assert len(SPARK_BLOCKS) == 1


@pytest.mark.timeout(120)
def test_clients(target):
    for block in CLIENT_BLOCKS:
        assert "ann" in run(block, target.bootstrap)


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_spark(target):
    for block in CLIENT_BLOCKS:
        run(block, target.bootstrap)
    table = run(SPARK_BLOCKS[0], target.bootstrap)
    assert re.search(r"\|\s*ann\|\s*\d+\|", table)
