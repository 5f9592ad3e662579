"""What docs/client.md shows, works: its Python blocks run as printed, one behind the other."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import HELD

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall((ROOT / "docs/client.md").read_text(encoding="utf-8"))


def test_there_is_something_to_try():
    assert len(BLOCKS) >= 8


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_runs_as_printed(number, tmp_path):
    path = tmp_path / "it.py"
    path.write_text(BLOCKS[number])
    command = [sys.executable, "-W", "error", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{BLOCKS[number]}\n{done.stdout}\n{done.stderr}"
    assert not HELD.sub("", done.stderr).strip()
