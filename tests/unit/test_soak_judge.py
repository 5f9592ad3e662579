"""The judges of tests/campaigns/soak.py find what grows, and what groups and disks owe."""

import os
import time
from types import SimpleNamespace

import pytest

from tests.campaigns.nodes_transactions import Writer
from tests.campaigns.soaking.groups import PARTITIONS, Group, OffsetsWatch
from tests.campaigns.soaking.samples import Lives, Sample, sample, slope_per_hour
from tests.campaigns.soaking.topics import RETAINED, RETAINED_MAX_BYTES, Retained, ShortLived

NOBODY = "127.0.0.1:1"
KIB_PER_MB = 1e6 / 1024


def samples(private_kib_by_minute):
    return [
        Sample(minute * 60.0, 0, round(kib), 0, 0, 0, 0.0, 0, 0)
        for minute, kib in enumerate(private_kib_by_minute)
    ]


def lives_of(taken, **minutes):
    lives = Lives(**{"life_minutes": 30, "warm_up_minutes": 15, **minutes})
    for each in taken:
        lives.add(1, 77, each)
    return lives


def message(partition, key):
    return SimpleNamespace(partition=lambda: partition, key=lambda: key)


def committed(partition, offset, error=None):
    return SimpleNamespace(partition=partition, offset=offset, error=error)


@pytest.fixture
def writer():
    writer = Writer("w", NOBODY, PARTITIONS, None)
    writer.committed, writer.unknown = {1, 2}, {3}
    return writer


@pytest.fixture
def group():
    group = Group("g", "classic")
    for number in (1, 2):
        group.see([message(partition, b"w %d" % number) for partition in range(PARTITIONS)])
    return group


def test_what_rises_by_eleven_megabytes_an_hour_is_found():
    lives = lives_of(samples(50_000 + minute * 11 * KIB_PER_MB / 60 for minute in range(60)))
    assert lives.problems(10) == ["node 1, process 77: 11.0 MB more every hour"]
    assert not lives.problems(12)


def test_what_rises_only_while_it_warms_up_does_not_grow():
    lives = lives_of(samples(50_000 + min(minute, 15) * 1_000 for minute in range(60)))
    assert not lives.problems(0.1)


def test_a_short_life_is_counted_and_not_judged():
    lives = lives_of(samples(minute * 1_000 for minute in range(20)))
    assert not lives.problems(10)
    report = lives.report()
    assert report["processes"] == []
    assert report["short_lives"] == {"count": 1, "private_kib_max": 19_000}


def test_a_report_has_figures_and_series():
    (told,) = lives_of(samples([5, 7, 9, 6]), life_minutes=1, warm_up_minutes=0).report()[
        "processes"
    ]
    assert told["private_kib"] == {"first": 5, "last": 6, "max": 9, "per_hour": 30.0}
    assert told["series"][:2] == [",".join(Sample._fields), "0.0,0,5,0,0,0,0.0,0,0"]


def test_two_samples_are_no_line():
    assert slope_per_hour(samples([1, 1_000]), "private_kib", warm_up_seconds=0) == 0


def test_this_process_can_be_looked_at(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file").write_bytes(b"x" * 10_000)
    taken = sample(os.getpid(), tmp_path, 1.0)
    assert taken.rss_kib >= taken.private_kib > 1_000
    assert taken.threads >= 1
    assert taken.descriptors >= 3
    assert taken.files == 1


def test_a_group_that_got_all_is_well(group, writer):
    assert not group.missing([writer])
    assert not group.unwanted([writer])


def test_what_no_member_got_is_found(group, writer):
    writer.committed.add(4)
    assert group.missing([writer])[0] == "g: nobody got w 4 of partition 0"


def test_what_was_aborted_and_read_is_found(group, writer):
    group.see([message(2, b"w 5")])
    assert group.unwanted([writer]) == ["g: somebody got b'w 5' of partition 2"]


def test_what_may_have_been_committed_may_be_read(group, writer):
    group.see([message(2, b"w 3")])
    assert not group.unwanted([writer])


def test_a_commit_that_was_refused_is_no_floor(group):
    group.commit([committed(0, 7), committed(1, 9, error="refused")])
    group.commit([committed(0, 5)])
    assert group.floor() == {0: 7}


@pytest.mark.parametrize("answer", [4, -1001])
def test_an_offset_that_falls_is_found(answer):
    watch = OffsetsWatch(NOBODY, "g", "t", lambda: {0: 5})
    watch.stopping.set()
    watch._consumer = SimpleNamespace(committed=lambda _asked, _seconds: [committed(0, answer)])
    watch.once()
    assert watch.problems == [f"g: partition 0 fell from 5 to {max(answer, 0)}"]


def test_an_offset_that_was_told_is_a_floor_too():
    watch = OffsetsWatch(NOBODY, "g", "t", dict)
    watch.stopping.set()
    for offset in (8, 7):
        answer = [committed(0, offset)]
        watch._consumer = SimpleNamespace(committed=lambda _asked, _seconds, a=answer: a)
        watch.once()
    assert watch.problems == ["g: partition 0 fell from 8 to 7"]


def test_files_of_a_topic_that_is_long_gone_are_found_once(tmp_path):
    data = tmp_path / "host-1" / "volume" / "data"
    for name in ("short-1-0", "short-2-0", "short-3-0"):
        (data / name).mkdir(parents=True)
    short = ShortLived(NOBODY, 0.0)
    short.gone = {1: time.monotonic() - 1_000, 2: time.monotonic()}
    assert short.left_behind([data]) == ["host-1: short-1-0 is still there"]
    assert not short.left_behind([data])


def test_a_partition_that_keeps_too_much_is_found(tmp_path):
    place = tmp_path / "host-1" / "volume" / "data" / f"{RETAINED}-0"
    place.mkdir(parents=True)
    with (place / "00000000000000000000.log").open("wb") as file:
        file.truncate(RETAINED_MAX_BYTES)
    retained = Retained(NOBODY, 0.0)
    assert not retained.too_large([place.parent])
    (place / "00000000000000000009.log").write_bytes(b"x")
    assert len(retained.too_large([place.parent])) == 1
