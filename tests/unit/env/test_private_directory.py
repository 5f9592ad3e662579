"""Secrets in a directory: nobody else reads them, and they are not overwritten."""

import errno
import os
import stat

import pytest

from ottla.env.private_directory import FILE_BYTES_MAX, NotPrivate, PrivateDirectory


@pytest.fixture
def directory(tmp_path):
    made = PrivateDirectory(str(tmp_path / "secrets"))
    assert made.make()
    return made


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_only_the_owner_may_read_whatever_the_mask(directory):
    before = os.umask(0)
    try:
        directory.keep("kept", "a secret")
        directory.replace("replaced", "another")
    finally:
        os.umask(before)
    assert mode(directory.path) == 0o700
    assert [mode(directory.of(name)) for name in ("kept", "replaced")] == [0o600, 0o600]
    assert directory.read("kept") == "a secret"
    assert sorted(os.listdir(directory.path)) == ["kept", "replaced"]


def test_what_is_kept_is_not_overwritten(directory):
    directory.keep("kept", "first")
    directory.keep("kept", "second")
    assert directory.read("kept") == "first"
    assert os.listdir(directory.path) == ["kept"]
    assert not directory.make()


def test_what_has_not_changed_is_not_written_again(directory):
    directory.replace("file", "text")
    first = os.stat(directory.of("file")).st_ino
    directory.replace("file", "text")
    assert os.stat(directory.of("file")).st_ino == first
    directory.replace("file", "other text")
    assert directory.read("file") == "other text"


def test_a_secret_that_others_can_read_is_refused_with_the_command_that_helps(directory):
    directory.keep("key", "text")
    path = directory.of("key")
    os.chmod(path, 0o640)
    with pytest.raises(NotPrivate, match=f"others may read {path}; chmod 600 {path}"):
        directory.read("key")
    assert directory.read("key", is_secret=False) == "text"
    os.chmod(directory.path, 0o777)
    with pytest.raises(NotPrivate, match="others may write"):
        directory.make()


def test_a_file_without_end_is_not_read(directory):
    directory.keep("large", "x" * (FILE_BYTES_MAX + 1))
    with pytest.raises(ValueError, match="is larger than"):
        directory.read("large")


def test_a_file_in_its_place_is_no_directory(tmp_path):
    (tmp_path / "file").write_text("text")
    with pytest.raises(FileExistsError):
        PrivateDirectory(str(tmp_path / "file")).make()


def test_a_full_disk_leaves_no_part_of_a_secret(directory, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        directory.keep("kept", "a secret")
    assert os.listdir(directory.path) == []
