"""What docs/testing.md shows, works: its Python blocks run as printed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall((ROOT / "docs/testing.md").read_text(encoding="utf-8"))


def test_there_is_something_to_try():
    assert len(BLOCKS) >= 4


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_runs_as_printed(number, tmp_path):
    path = tmp_path / "test_it.py"
    path.write_text(BLOCKS[number])
    command = [sys.executable, str(path)]
    if "def test_" in BLOCKS[number]:
        command = [sys.executable, "-m", "pytest", "-p", "ottla.testing.plugin", str(path)]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{BLOCKS[number]}\n{done.stdout}\n{done.stderr}"
