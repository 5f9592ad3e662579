"""Disks in memory whose process has ended: their files are as they are, their locks given back."""

from ottla.log.files.layout import LOCK


def give_locks_back(disk, *log_dirs):
    """Do what the end of a process does, for the log directories that it had."""
    for log_dir in log_dirs:
        disk.open(f"{log_dir}/{LOCK}", create=True)._inode.locked = False
