"""What the real disk says of the page cache, on file systems that tell."""

import os
import sys

import pytest

from ottla.env.real_disk import RealDisk


def test_what_was_written_is_cached_and_what_was_dropped_is_not(tmp_path):
    if sys.platform != "linux":
        pytest.skip("only Linux can be asked")
    file = RealDisk().open(str(tmp_path / "file"), create=True)
    file.write_at(0, bytes(1 << 20))
    assert file.is_cached(0, 1 << 20)
    file.sync()
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if file.is_cached(0, 1 << 20):
        pytest.skip("the file system here keeps or cannot tell")
    assert len(file.read_at(1 << 19, 1 << 19)) == 1 << 19
    assert file.is_cached(1 << 19, 1 << 19)


def test_a_closed_file_waits_for_nothing(tmp_path):
    file = RealDisk().open(str(tmp_path / "file"), create=True)
    file.close()
    assert file.is_cached(0, 1)
