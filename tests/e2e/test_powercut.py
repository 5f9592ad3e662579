"""The short form of tests/campaigns/powercut.py: some power cuts and kills at chosen disk calls."""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.campaigns.powercuts.volume import NOLOGFLUSH, Impossible, Volume, cut_power

CAMPAIGN = Path(__file__).resolve().parent.parent / "campaigns" / "powercut.py"
FILES = 4
WRITER = f"""
import os, sys, threading

def append(index):
    file = os.open(f"{{sys.argv[1]}}/{{index}}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while True:
        os.write(file, b"x")
        os.fdatasync(file)
        os.write(1, b"%d" % index)

for index in range({FILES}):
    threading.Thread(target=append, args=(index,)).start()
"""
"""Makes files longer, byte by byte, and says which, after each sync that has succeeded."""


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_power_cuts_at_chosen_disk_calls_break_no_promise():
    done = subprocess.run(
        [sys.executable, CAMPAIGN, "--cuts", "28", "--max-start-seconds", "20"],
        capture_output=True,
        text=True,
        timeout=230,
    )
    if done.returncode == 2:
        pytest.skip(done.stderr.strip())  # Not everybody is root, or has loop devices.
    assert done.stdout.strip(), done.stderr
    report = json.loads(done.stdout)
    assert report["problems"] == []
    assert report["cuts"] >= 20
    assert report["batches_compared"] > 300
    assert done.returncode == 0, done.stdout + done.stderr


def test_nobody_hears_of_a_sync_that_the_power_cut_undoes(tmp_path):
    chooser = random.Random(1)
    try:
        with Volume(tmp_path) as volume:
            for _ in range(20):
                writer = subprocess.Popen(
                    [sys.executable, "-c", WRITER, volume.path], stdout=subprocess.PIPE
                )
                heard = os.read(writer.stdout.fileno(), 1)
                time.sleep(chooser.uniform(0, 0.03))
                cut_power(str(volume.path), NOLOGFLUSH, writer.pid)
                writer.kill()
                heard += writer.communicate(timeout=10)[0]
                volume.power_on_again()
                for index, count in Counter(heard).items():
                    file = volume.path / chr(index)
                    assert file.stat().st_size >= count
                    file.unlink()
                volume.sync()
    except Impossible as why:
        pytest.skip(str(why))
