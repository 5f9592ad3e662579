"""Commits that wait too long for the disk are refused; batches are compressed as configured."""

from ottla.errors import ErrorCode
from ottla.records.compression import Codec


def test_a_client_is_told_in_time_and_the_commit_counts_later(make_groups, words):
    groups = make_groups(settings=words.SETTINGS._replace(offset_commit_timeout_ms=2_000))
    first = groups.commit("g", (0, 1))
    groups.clock.advance(1)
    second = groups.commit("g", (0, 2))
    groups.clock.advance(1)
    assert first.error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not second.is_done
    groups.clock.advance(1.01)
    assert second.error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    third = groups.commit("g", (1, 3))
    groups.settle()
    assert words.result_of(third) == [ErrorCode.NONE]
    assert groups.fetch("g") == {("t", 0): 2, ("t", 1): 3}


def test_commits_in_time_leave_nothing_behind(groups, words):
    for offset in range(50):
        committed = groups.commit("g", (0, offset))
        groups.settle()
        assert words.result_of(committed) == [ErrorCode.NONE]
    assert len(groups.shard("g").machine.commit_timeouts._waiting) <= 1


def test_what_is_written_compressed_is_read_again(make_groups, words):
    groups = make_groups(codec=Codec.ZSTD)
    member, _ = groups.member("kept")
    groups.commit("g", *((index, index) for index in range(100)))
    groups.settle()
    codecs = set()
    for index in range(2):
        log = groups.partition(index).log
        if log.log_end_offset:
            region = log.read(
                0, max_bytes=1 << 20, upper_offset=log.log_end_offset, min_one_message=True
            ).region
            codecs.add(region.read()[22] & 7)
    assert codecs == {Codec.ZSTD}
    groups.restart()
    assert len(groups.fetch("g")) == 100
    assert set(groups.group("kept").members) == {member}
