"""Which leader epochs a log knows after a start."""

import pytest

from tests.unit.log.test_recovery import CONFIG


def test_epochs_are_found_again_without_their_checkpoint(stopped, open_partition):
    disk, directory, path, _ = stopped(**CONFIG)
    disk.remove(f"{path}/leader-epoch-checkpoint")
    log = open_partition(disk, directory, clean=True, recovery_point=40, **CONFIG)
    assert log.leader_epochs.entries == [(0, 0), (1, 20)]


def test_epochs_behind_a_cut_tail_are_forgotten(stopped, open_partition):
    disk, directory, path, _ = stopped()
    disk.open(f"{path}/leader-epoch-checkpoint").write_at(0, b"0\n3\n0 0\n1 20\n2 40\n")
    log = open_partition(disk, directory, recovery_point=40)
    assert log.leader_epochs.entries == [(0, 0), (1, 20)]


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_whose_records_are_all_deleted_knows_their_last_epoch(stopped, open_partition, clean):
    """Without it, a copy from before they were deleted passed for the newer one."""
    disk, directory, path, _ = stopped(**CONFIG)
    told = {"clean": clean, "recovery_point": 40, "start": 40, **CONFIG}
    for _ in range(3):
        log = open_partition(disk, directory, **told)
        assert log.log_start_offset == log.log_end_offset == 40
        assert log.leader_epochs.entries == [(1, 40)]
        log.close()
    for name in disk.list_directory(path):
        if name.endswith(".log"):
            disk.remove(f"{path}/{name}")
    for _ in range(3):
        log = open_partition(disk, directory, **told)
        assert log.leader_epochs.entries == [(1, 40)]
        log.close()
