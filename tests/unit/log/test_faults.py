"""What each errno means; a sync that could not begin is no failed sync."""

import errno

import pytest

from ottla.env.faulty_disk import DiskCall, FaultyDisk
from ottla.env.memory_disk import MemoryDisk
from ottla.log.files.faults import (
    Meaning,
    SyncFailed,
    ends_directory,
    is_out_of_space,
    is_shortage,
    meaning_of,
    sync_directory,
)


@pytest.mark.parametrize(
    ("number", "meaning"),
    [
        (errno.ENOSPC, Meaning.FULL),
        (errno.EDQUOT, Meaning.FULL),
        (errno.EMFILE, Meaning.SHORTAGE),
        (errno.ENFILE, Meaning.SHORTAGE),
        (errno.ENOMEM, Meaning.SHORTAGE),
        (errno.EINTR, Meaning.SHORTAGE),
        (errno.ENOENT, Meaning.ONE_PATH),
        (errno.EIO, Meaning.BROKEN),
        (errno.EROFS, Meaning.BROKEN),
        (errno.ENODEV, Meaning.BROKEN),
        (None, Meaning.BROKEN),
    ],
)
def test_an_errno_means_one_thing_and_of_a_sync_nothing_passes(number, meaning):
    error = OSError("?") if number is None else OSError(number, "?")
    assert meaning_of(error) is meaning
    assert ends_directory(error) == (meaning is Meaning.BROKEN)
    assert is_out_of_space(error) == (meaning is Meaning.FULL)
    assert is_shortage(error) == (meaning is Meaning.SHORTAGE)
    assert ends_directory(SyncFailed(number, "?"))


@pytest.mark.parametrize(
    ("number", "passes"),
    [(errno.EMFILE, True), (errno.ENFILE, True), (errno.ENOENT, False), (errno.EIO, False)],
)
def test_a_directory_that_could_not_be_opened_for_its_sync_is_no_failed_sync(number, passes):
    disk = FaultyDisk(MemoryDisk())
    disk.make_directory("/d")
    disk.fail(DiskCall.SYNC_DIRECTORY, errno=number)
    with pytest.raises(OSError) as raised:  # noqa: PT011 - what kind is the question
        sync_directory(disk, "/d")
    assert raised.value.errno == number
    assert isinstance(raised.value, SyncFailed) != passes
