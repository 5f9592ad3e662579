"""A staged batch delivered exactly once while its time runs out, or its files are others by then.

Without Spark, on Ottla and (``--target kafka``) Apache Kafka. Two tasks stage three record batches
each; what is to happen happens before the driver begins, or when a part of the batch is in the log.
"""

import os
import subprocess
import time
import uuid

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")

from ottla.client.blocking.coordinators import BlockingCoordinators
from ottla.client.blocking.producer import BlockingProducer
from ottla.ids import TopicPartition
from ottla.records.builder import build_batch
from ottla.records.record import Record
from ottla.spark.writing.delivery import deliver_staged
from ottla.spark.writing.identity import BatchOf, Content
from ottla.spark.writing.marker import DeliveryError
from ottla.spark.writing.messages import Staged
from ottla.spark.writing.sink_options import parse_sink_options, transactional_id_of
from ottla.spark.writing.staged_files import attempt_directory
from ottla.spark.writing.staging import Location, StagingWriter
from ottla.spark.writing.staging_place import StagingError, stage
from tests.deliveries import committed_values, is_open
from tools.wire_client import WireClient

pytestmark = pytest.mark.timeout(150)  # Kafka looks for late transactions every 10 s
TASKS, BATCHES = 2, 3
TIMEOUT_MS = "1000"


class Killed(BaseException):
    """The end of the process."""


class Driver:
    """The driver of one run of a query; each run has a Driver of its own."""

    def __init__(self, bootstrap, topic, location, query, **more):
        given = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "delivery": "exactly-once"}
        self.options = parse_sink_options({**given, "stagingLocation": str(location), **more})
        self.topic, self.query, self.run = topic, query, uuid.uuid4().hex

    def stage(self, number):
        """Return the messages of the tasks of a micro-batch."""
        self.number = number
        self.stage_of = stage(self.options.staging_location, None)
        batch = BatchOf(self.query, number, self.run)
        owner = transactional_id_of(self.options, batch)
        directory = attempt_directory(self.stage_of.attempt, owner, number)
        staged = []
        for task in range(TASKS):
            writer = StagingWriter(self.stage_of.place, directory, str(task))
            try:
                for index in range(BATCHES):
                    value = b"%d-%d-%d" % (number, task, index) + b"." * 2000
                    record = build_batch([Record(value=value)], transactional=True)
                    writer.write(TopicPartition(self.topic, index % 2), memoryview(record))
                file = writer.finish()
            finally:
                writer.abandon()  # as a task does it
            staged.append(Staged(batch, [], Content(BATCHES, 7 + number), file))
        return staged

    def deliver(self, staged):
        """End the micro-batch."""
        deliver_staged(self.options, staged, self.number, self.stage_of.place)


def values_of(*numbers):
    names = [f"{n}-{task}-{i}" for n in numbers for task in range(TASKS) for i in range(BATCHES)]
    return sorted(each + "." * 2000 for each in names)


@pytest.fixture
def topic(target, topic_name):
    with WireClient(target.bootstrap) as wire:
        wire.create_topic(topic_name, 2)
    return topic_name


@pytest.fixture
def driver(target, topic, tmp_path):
    """Begin runs of one query."""
    query = uuid.uuid4().hex

    def begin(**more):
        return Driver(target.bootstrap, topic, tmp_path / "staging", query, **more)

    return begin


@pytest.fixture
def there(target, topic):
    return lambda: committed_values(target.bootstrap, topic)


@pytest.fixture
def files(tmp_path):
    return lambda: [each for each in (tmp_path / "staging").rglob("*") if each.is_file()]


def at_call(monkeypatch, owner, method, calls, what):
    """Do something before these calls of a method, counted from 1."""
    original, count = getattr(owner, method), iter(range(1, 10_000))

    def called(self, *arguments, **named):
        if next(count) in calls:
            what(self)
        return original(self, *arguments, **named)

    monkeypatch.setattr(owner, method, called)


# -- time ------------------------------------------------------------------------------------------


@pytest.fixture
def outstay(target, topic):
    """Wait until the coordinator has aborted the transaction, which is to be open."""

    def wait(_=None):
        assert is_open(target.bootstrap, topic)
        deadline = time.monotonic() + 40
        while is_open(target.bootstrap, topic):
            assert time.monotonic() < deadline
            time.sleep(0.1)

    return wait


LATE = {
    "between two batches": (BlockingProducer, "send", 5, True),
    "before the last answers": (BlockingProducer, "flush", 1, True),
    "before the marker": (BlockingCoordinators, "commit_offsets", 1, False),
    "before its end": (BlockingCoordinators, "end", 1, False),
}


@pytest.mark.parametrize("late", LATE)
def test_a_transaction_that_takes_too_long_shows_nothing_and_is_sent_again(
    monkeypatch, driver, there, files, outstay, late
):
    owner, method, call, flushes = LATE[late]
    run = driver(**{"kafka.transaction.timeout.ms": TIMEOUT_MS})
    run.deliver(run.stage(0))
    staged, seen = run.stage(1), []

    def wait(own):
        if flushes:
            flush(own)  # what was sent is in the log
        outstay()
        seen.append(there())

    flush = BlockingProducer.flush
    with monkeypatch.context() as patch:
        at_call(patch, owner, method, {call}, wait)
        run.deliver(staged)
    assert seen == [values_of(0)]
    assert there() == values_of(0, 1)
    assert files() == []


def test_a_transaction_that_is_late_each_time_is_an_error_and_has_a_way_on(
    monkeypatch, driver, there, files, outstay
):
    run = driver(**{"kafka.transaction.timeout.ms": TIMEOUT_MS})
    staged = run.stage(0)
    with monkeypatch.context() as patch:
        at_call(patch, BlockingCoordinators, "commit_offsets", {1, 2, 3}, outstay)
        with pytest.raises(DeliveryError, match="ran out of time 3 times"):
            run.deliver(staged)
    assert there() == []
    again = driver(**{"kafka.transaction.timeout.ms": "60000"})
    again.deliver(again.stage(0))
    assert there() == values_of(0)
    assert files() == []


# -- files -----------------------------------------------------------------------------------------


def remove(path):
    path.unlink()


def shorten(path):
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 10)


def lengthen(path):
    with path.open("ab") as file:
        file.write(b"x")


def replace_all(path):
    path.write_bytes(b"\xee" * path.stat().st_size)


def change_a_batch(path):
    with path.open("r+b") as file:
        file.seek(1000)
        file.write(b"!")


def make_a_directory(path):
    path.unlink()
    path.mkdir()


def take_away_all(path):
    """What an unmounted or emptied location looks like."""
    root = path.parents[2]
    root.rename(root.with_name("elsewhere"))


CHANGES = [
    remove,
    shorten,
    lengthen,
    replace_all,
    change_a_batch,
    make_a_directory,
    take_away_all,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda each: each.__name__)
@pytest.mark.parametrize("moment", ["before", "midway", "when it is sent again"])
def test_a_file_that_is_not_what_was_staged_ends_the_batch_unseen(
    monkeypatch, driver, there, files, outstay, tmp_path, change, moment
):
    first = driver()
    first.deliver(first.stage(0))
    run = driver(**{"kafka.transaction.timeout.ms": TIMEOUT_MS if "again" in moment else "60000"})
    staged = run.stage(1)
    path = tmp_path / "staging" / staged[1].file.path
    flush = BlockingProducer.flush

    def midway(own):
        flush(own)
        if "again" in moment:
            outstay()
        change(path)

    with monkeypatch.context() as patch:
        if moment == "before":
            change(path)
        elif moment == "midway":
            at_call(patch, BlockingProducer, "send", {BATCHES}, midway)
        else:
            at_call(patch, BlockingProducer, "flush", {1}, midway)
        with pytest.raises(StagingError):
            run.deliver(staged)
    assert there() == values_of(0)
    again = driver()
    again.deliver(again.stage(1))
    assert there() == values_of(0, 1)
    assert files() == []


def test_a_location_that_lets_nothing_be_removed_is_no_reason_to_fail(
    monkeypatch, driver, there, files, caplog
):
    def refuse(self, directory):
        raise StagingError("read-only")

    run = driver()
    with monkeypatch.context() as patch:
        patch.setattr(Location, "remove", refuse)
        run.deliver(run.stage(0))
    assert "stays there: read-only" in caplog.text
    assert there() == values_of(0)
    assert len(files()) == TASKS
    again = driver()
    again.deliver(again.stage(1))
    assert files() == []


@pytest.fixture
def disk(tmp_path):
    """A small file system of its own as the location; returns a function that mounts it anew."""
    place = tmp_path / "staging"
    place.mkdir()

    def mount(options):
        return subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "none", str(place)], capture_output=True
        )

    if os.name == "nt" or os.geteuid() or mount("size=64k").returncode:
        pytest.skip("needs the right to mount")
    yield lambda options: mount(f"remount,{options}").check_returncode()
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_fails_the_task_and_keeps_nothing(disk, driver, there, files, tmp_path):
    first = driver()
    first.deliver(first.stage(0))
    occupied = tmp_path / "staging" / "occupied"
    occupied.write_bytes(b"." * 50_000)
    with pytest.raises(StagingError, match="No space left on device"):
        driver().stage(1)
    # The first task had room; the second has taken away what it could write.
    left = [each for each in files() if each != occupied]
    assert [each.name for each in left] == ["0.batches"]
    assert there() == values_of(0)
    occupied.unlink()
    again = driver()
    again.deliver(again.stage(1))
    assert there() == values_of(0, 1)
    assert files() == []


def test_a_disk_that_can_only_be_read_delivers_what_is_there(disk, driver, there, files, caplog):
    run = driver()
    staged = run.stage(0)
    disk("ro")
    run.deliver(staged)
    assert "what was staged for a batch that is done stays there" in caplog.text
    with pytest.raises(StagingError, match="Read-only file system"):
        driver().stage(1)
    assert there() == values_of(0)
    disk("rw")
    again = driver()
    again.deliver(again.stage(1))
    assert there() == values_of(0, 1)
    assert files() == []


# -- two drivers on one checkpoint -----------------------------------------------------------------

MOMENTS = {
    "has staged": None,
    "has taken over": (BlockingCoordinators, "take_over", 2),
    "has looked for the marker": (BlockingProducer, "join", 1),
    "has sent a part": (BlockingProducer, "send", BATCHES),
    "has opened the last file": (BlockingProducer, "send", BATCHES + 1),
    "has sent all": (BlockingCoordinators, "commit_offsets", 1),
    "is about to commit": (BlockingCoordinators, "end", 1),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_of_two_drivers_with_one_checkpoint_one_writes(monkeypatch, driver, there, files, moment):
    """The other one delivers the same batch when this one has come to a moment, and clears up."""
    first = driver()
    first.deliver(first.stage(0))
    one, other = driver(), driver()
    staged, theirs = one.stage(1), other.stage(1)

    if moment == "has staged":
        other.deliver(theirs)
        one.deliver(staged)  # finds it there
    elif moment == "has taken over":
        take_over = BlockingCoordinators.take_over

        def taken(self, *arguments):
            producer = take_over(self, *arguments)
            monkeypatch.setattr(BlockingCoordinators, "take_over", take_over)
            other.deliver(theirs)
            return producer

        monkeypatch.setattr(BlockingCoordinators, "take_over", taken)
        one.deliver(staged)
    else:
        owner, method, call = MOMENTS[moment]
        flush = BlockingProducer.flush

        def deliver_theirs(own):
            if isinstance(own, BlockingProducer) and method == "send":
                flush(own)
            monkeypatch.undo()
            other.deliver(theirs)

        at_call(monkeypatch, owner, method, {call}, deliver_theirs)
        with pytest.raises(DeliveryError, match="another producer has taken over transactional id"):
            one.deliver(staged)
    assert there() == values_of(0, 1)
    again = driver()
    again.deliver(again.stage(1))
    again.deliver(again.stage(2))
    assert there() == values_of(0, 1, 2)
    assert files() == []


def test_a_driver_killed_before_it_cleared_up_has_left_nothing_for_ever(
    monkeypatch, driver, there, files
):
    run = driver()
    with monkeypatch.context() as patch:

        def die(*_):
            raise Killed

        patch.setattr("ottla.spark.writing.delivery._clear", die)
        with pytest.raises(Killed):
            run.deliver(run.stage(0))
    assert len(files()) == TASKS
    again = driver()
    again.deliver(again.stage(0))
    assert there() == values_of(0)
    assert files() == []
