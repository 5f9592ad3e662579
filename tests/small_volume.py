"""A volume that fills up soon: a file system in memory, which only root can mount."""

import subprocess
from contextlib import contextmanager

import pytest


@contextmanager
def small_volume(place, size):
    """Mount a volume of ``size`` (such as 24m) at a new directory; skip the test if none can be."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount")
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)
