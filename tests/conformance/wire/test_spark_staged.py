"""A batch that was staged in files, delivered exactly once. Without Spark.

On Ottla and (``--target kafka``) Apache Kafka: killed at each step, transactions that run out of
time, files that are damaged meanwhile.
"""

import contextlib
import gc
import re
import time
import tracemalloc
import uuid

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")

from ottla.client.blocking.cluster import BlockingClient
from ottla.client.blocking.coordinators import BlockingCoordinators
from ottla.client.blocking.producer import BlockingProducer
from ottla.client.wire.fetching import FetchLimits
from ottla.client.wire.offsets import LATEST
from ottla.client.wire.reading import read_records
from ottla.client.wire.settings import ClientSettings, parse_bootstrap
from ottla.ids import TopicPartition
from ottla.records.batch_walk import next_offset
from ottla.records.builder import build_batch
from ottla.records.record import Record
from ottla.spark.writing import transaction
from ottla.spark.writing.delivery import deliver_staged
from ottla.spark.writing.identity import BatchOf, Content, Step
from ottla.spark.writing.marker import DeliveryError, Marker
from ottla.spark.writing.messages import Staged
from ottla.spark.writing.outgoing import Outgoing
from ottla.spark.writing.sink_options import parse_sink_options
from ottla.spark.writing.sink_task import stage_rows
from ottla.spark.writing.staged_files import attempt_directory
from ottla.spark.writing.staging import StagingWriter
from ottla.spark.writing.staging_place import Attempt, Place, Stage, StagingError
from ottla.spark.writing.transaction import deliver
from tools.wire_client import WireClient

COMMITTED = FetchLimits(max_wait_ms=100, read_committed=True)
PARTITIONS = 3
TASKS, BATCHES = 2, 30


class Killed(BaseException):
    """The end of the process."""


@pytest.fixture
def topic(target, topic_name):
    with WireClient(target.bootstrap) as wire:
        wire.create_topic(topic_name, PARTITIONS)
    return topic_name


@pytest.fixture
def options(target, topic):
    def make(**more):
        given = {
            "kafka.bootstrap.servers": target.bootstrap,
            "topic": topic,
            "delivery": "exactly-once",
        }
        return parse_sink_options(given | more)

    return make


@pytest.fixture
def name():
    return uuid.uuid4().hex


def records(topic, task):
    """What a task hands over: by turns for each partition, and a few larger ones."""
    for number in range(BATCHES):
        value = f"{task}-{number:02}".encode() + b"." * (50_000 if number % 10 == 5 else 0)
        batch = build_batch([Record(value=value)], transactional=True)
        yield TopicPartition(topic, number % PARTITIONS), batch


@pytest.fixture
def stage(tmp_path, topic):
    """Stage a batch in a file for each of two tasks, and a third task's in its message."""

    def run():
        staged = []
        for task in range(TASKS):
            writer = StagingWriter(Place(str(tmp_path)), "owner/0-0-ab", str(task))
            for partition, batch in records(topic, task):
                writer.write(partition, memoryview(batch))
            staged.append(Staged(file=writer.finish()))
        held = build_batch([Record(value=b"held")], transactional=True)
        return [*staged, Staged(batches=[(TopicPartition(topic, 0), held)])]

    return run


EVERYTHING = sorted(
    ["held", *(f"{task}-{number:02}" for task in range(TASKS) for number in range(BATCHES))]
)


@pytest.fixture
def values(target, topic):
    """What a consumer of committed records sees once no transaction is open, without the padding;
    and how many records there are in the topic in all."""

    def read():
        found, total = [], 0
        with BlockingClient(ClientSettings(parse_bootstrap(target.bootstrap))) as client:
            latest = dict.fromkeys(client.partitions(topic), LATEST)
            deadline = time.monotonic() + 30
            while (ends := client.list_offsets(latest, read_committed=True)) != (
                client.list_offsets(latest)
            ):
                assert time.monotonic() < deadline, ends
                time.sleep(0.05)
            for place, end in ends.items():
                position = 0
                total += end.offset
                while position < end.offset:
                    fetched = client.fetch({place: position}, COMMITTED)[place]
                    here = read_records(fetched.records, position, fetched.aborted)
                    found += [record.value.decode().rstrip(".") for record in here]
                    position = next_offset(fetched.records, position)
        return sorted(found), total

    return read


def marker(topic, number=0, run="run"):
    return Marker("q", number, topic, run, Content(61, 1))


def test_what_was_staged_is_written_once_in_order(options, stage, values, name, topic):
    outgoing = Outgoing(stage())
    assert outgoing.partitions == {TopicPartition(topic, number) for number in range(PARTITIONS)}
    assert outgoing.size_bytes > 300_000
    assert deliver(options(), name, marker(topic), outgoing).step is Step.WRITE
    again = deliver(options(), name, marker(topic, run="next"), Outgoing(stage()))
    assert again == (Step.SKIP, marker(topic))
    assert values()[0] == EVERYTHING


@pytest.mark.parametrize(
    ("owner", "method", "after", "call", "is_there"),
    [
        (BlockingCoordinators, "take_over", False, 1, False),  # staged, and nothing more
        (BlockingProducer, "join", True, 1, False),  # the transaction is open
        (BlockingProducer, "_send_to", True, 1, False),  # the first bytes are sent
        (BlockingProducer, "flush", True, 1, False),
        (BlockingCoordinators, "commit_offsets", True, 1, False),
        (BlockingCoordinators, "end", False, 1, False),
        (BlockingCoordinators, "end", True, 1, True),  # answered, and the process ends
    ],
)
def test_killed_at_any_step_what_was_staged_is_there_once(
    monkeypatch, options, stage, values, name, topic, owner, method, after, call, is_there
):
    with monkeypatch.context() as patch:
        original = getattr(owner, method)

        def dying(self, *arguments, **named):
            if not after:
                raise Killed
            original(self, *arguments, **named)
            raise Killed

        patch.setattr(owner, method, dying)
        with pytest.raises(Killed):
            deliver(options(), name, marker(topic), Outgoing(stage()))
    # Spark starts anew: the tasks stage again, elsewhere.
    done = deliver(options(), name, marker(topic, run="next"), Outgoing(stage()))
    assert done.step is (Step.SKIP if is_there else Step.WRITE)
    assert values()[0] == EVERYTHING


def change(path, position, octet):
    data = bytearray(path.read_bytes())
    data[position] ^= octet
    path.write_bytes(data)


DAMAGES = {
    "gone": (lambda path: path.unlink(), "which a task on .* has written, cannot be read"),
    "short": (lambda path: path.write_bytes(path.read_bytes()[:-1]), r"has \d+ bytes, not \d+"),
    "empty": (lambda path: path.write_bytes(b""), "has 0 bytes, not"),
    "foreign": (
        lambda path: path.write_bytes(b"x" * path.stat().st_size),
        "is another one than the task has written",
    ),
    "index": (lambda path: change(path, -3, 1), "is another one than the task has written"),
    "first batch": (lambda path: change(path, 100, 1), "is not what was written"),
    "last batch": (lambda path: change(path, -700, 1), "is not what was written"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_told_and_nothing_is_to_be_seen(
    options, stage, values, name, topic, tmp_path, damage
):
    work, why = DAMAGES[damage]
    staged = stage()
    work(tmp_path / staged[1].file.path)
    with pytest.raises(StagingError, match=why):
        deliver(options(), name, marker(topic), Outgoing(staged))
    found, total = values()  # no transaction is left open
    assert found == []
    assert total == 0 or "batch" in damage  # else it was seen before the first byte was sent
    assert deliver(options(), name, marker(topic), Outgoing(stage())).step is Step.WRITE
    assert values()[0] == EVERYTHING


def test_two_drivers_on_one_checkpoint_write_a_batch_once_and_clear_it(
    monkeypatch, options, values, name, topic, tmp_path
):
    """Both have staged batch 1; the one that is fenced in the middle finds its files gone, too."""

    def stage_by(run):
        writer = StagingWriter(
            Place(str(tmp_path)), attempt_directory(Attempt(1, run * 6), name, 1), run
        )
        for partition, batch in records(topic, 0):
            writer.write(partition, memoryview(batch))
        batch_of = BatchOf("q", 1, {"aa": "run", "bb": "another"}[run])
        return [Staged(batch_of, [], Content(30, 5), writer.finish())]

    given = options(**{"transactional.id": name, "onMissingMarker": "write"})
    older, newer = stage_by("aa"), stage_by("bb")
    send = BlockingProducer.send
    with monkeypatch.context() as patch:

        def stopped(self, partition, batch, size_bytes):
            patch.setattr(BlockingProducer, "send", send)
            deliver_staged(given, newer, 1, Place(str(tmp_path)))
            send(self, partition, batch, size_bytes)

        patch.setattr(BlockingProducer, "send", stopped)
        with pytest.raises(DeliveryError, match="another producer has taken over"):
            deliver_staged(given, older, 1, Place(str(tmp_path)))
    assert values()[0] == sorted(f"0-{number:02}" for number in range(BATCHES))
    assert not [each for each in tmp_path.rglob("*") if each.is_file()]
    # The older driver starts again: what is there is found, and its files go as well.
    deliver_staged(given, stage_by("aa"), 1, Place(str(tmp_path)))
    assert values()[0] == sorted(f"0-{number:02}" for number in range(BATCHES))
    assert not [each for each in tmp_path.rglob("*") if each.is_file()]


class Slow(Outgoing):
    """Staging so slow that the transaction ends in the middle, some of the times."""

    def __init__(self, staged, is_over, times):
        super().__init__(staged)
        self._is_over, self._times = is_over, times
        self.tries = 0

    def __iter__(self):
        self.tries += 1
        for number, each in enumerate(super().__iter__()):
            if number == 20 and self.tries <= self._times:
                self._is_over()
            yield each


@pytest.fixture
def is_over(wire, name):
    """Wait until the coordinator has aborted the transaction of ``name``."""

    def wait():
        deadline = time.monotonic() + 40
        while True:
            found = wire.call("describe_transactions", 0, transactional_ids=[name])
            state = found["transaction_states"][0]["transaction_state"]
            if state == "CompleteAbort":
                return
            assert state in ("Ongoing", "PrepareAbort", "PrepareEpochFence"), state
            assert time.monotonic() < deadline, state
            time.sleep(0.05)

    return wait


@pytest.mark.timeout(180)
@pytest.mark.parametrize("times", [1, 2])
def test_after_a_timeout_nothing_is_seen_and_it_is_sent_again(
    options, stage, values, name, topic, is_over, times
):
    def over():
        is_over()
        assert values()[0] == []

    outgoing = Slow(stage(), over, times)
    given = options(**{"kafka.transaction.timeout.ms": "1000"})
    assert deliver(given, name, marker(topic), outgoing).step is Step.WRITE
    assert outgoing.tries == times + 1
    found, total = values()
    assert found == EVERYTHING
    assert total > 61 + PARTITIONS  # what was aborted is there, too


@pytest.mark.timeout(180)
def test_after_three_timeouts_the_error_names_size_rate_and_options(
    options, stage, values, name, topic, is_over
):
    outgoing = Slow(stage(), is_over, 9)
    given = options(**{"kafka.transaction.timeout.ms": "1s"})
    with pytest.raises(DeliveryError) as caught:
        deliver(given, name, marker(topic), outgoing)
    text = str(caught.value)
    assert "ran out of time 3 times" in text
    assert "transaction of 298.3 KiB" in text
    assert re.search(r"were sent in \d+ s \([0-9.]+ K?i?B/s\)", text)
    assert "open for 1s" in text
    assert "kafka.transaction.timeout.ms" in text
    assert outgoing.tries == 3
    assert values()[0] == []


@pytest.mark.timeout(120)
def test_a_commit_that_came_before_the_timeout_is_found_not_repeated(
    monkeypatch, options, stage, values, name, topic
):
    """EndTxn is done, its answer is lost, and the next try finds the epoch gone."""
    end = BlockingCoordinators.end
    lost = []

    def lose(self, producer, *, commit):
        end(self, producer, commit=commit)
        if not lost:
            lost.append(self.take_over(name, 60_000))
            time.sleep(1.1)
            end(self, producer, commit=commit)

    monkeypatch.setattr(BlockingCoordinators, "end", lose)
    given = options(**{"kafka.transaction.timeout.ms": "1000"})
    done = deliver(given, name, marker(topic), Outgoing(stage()))
    assert done.step is Step.WRITE
    assert lost
    assert values()[0] == EVERYTHING


def test_a_timeout_beyond_the_brokers_is_lowered_or_refused(
    monkeypatch, options, stage, values, name, topic
):
    monkeypatch.setattr(transaction, "TIMEOUT_MS_MIN", 100_000_000)
    monkeypatch.setattr(transaction, "TIMEOUT_MS_MAX", 100_000_000)
    assert deliver(options(), name, marker(topic), Outgoing(stage())).step is Step.WRITE
    assert values()[0] == EVERYTHING
    given = options(**{"kafka.transaction.timeout.ms": "1d"})
    with pytest.raises(DeliveryError, match=r"is more than the brokers take.*transaction\.max"):
        deliver(given, name, marker(topic, 1), Outgoing(stage()))


def test_the_timeout_grows_with_the_size_and_the_number_of_batches():
    decide = transaction.timeout_ms_for
    assert decide(0, 0, None, 0) == 60_000
    assert decide(1 << 30, 0, None, 0) == 60_000 + (1 << 18)
    assert decide(0, 20_000, None, 0) == 260_000
    assert decide(1 << 40, 0, None, 0) == decide(0, 0, None, 1) == 900_000
    assert decide(0, 1_000_000, None, 0) == 900_000
    assert decide(1 << 40, 9, 5, 2) == 5


@contextlib.contextmanager
def peak_memory():
    """Yield a list that has, at the end, how many bytes were taken at once within the block."""
    found = []
    gc.collect()
    tracemalloc.start()
    try:
        yield found
        found.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def test_many_output_partitions_are_joined_and_written_in_bounded_memory(
    target, topic_name, name, tmp_path
):
    """A task has a batch for each; the coordinator writes each request down.

    What is imported on the way (pyarrow imports pandas with the first array of a list: 26 MB) is
    nobody's rows, so a first task of one row, which is not counted, does it.
    """
    import pyarrow as pa

    with WireClient(target.bootstrap) as wire:
        wire.create_topic(topic_name, 1_000)
    options = parse_sink_options(
        {
            "kafka.bootstrap.servers": target.bootstrap,
            "topic": topic_name,
            "delivery": "exactly-once",
            "exactlyoncemaxbytes": "1",
        }
    )

    def staged_rows(numbers):
        keys = pa.array([str(number) for number in numbers])
        rows = pa.record_batch({"key": keys, "value": keys})
        where = Stage(Place(str(tmp_path)), Attempt(1, "ab" * 6))
        return stage_rows(options, where, iter([rows]))

    staged_rows([1])
    staged = []
    for task in range(2):
        with peak_memory() as peak:
            staged.append(staged_rows(range(task, 20_000, 2)))
        # The batches that are filling may have half of kafka.buffer.memory.
        assert peak[0] < 18 << 20
    outgoing = Outgoing(staged)
    assert 2_000 <= outgoing.batch_count < 2_010
    assert outgoing.partitions == {TopicPartition(topic_name, number) for number in range(1_000)}
    asked = []
    with pytest.MonkeyPatch.context() as patch:
        add = BlockingCoordinators.add_partitions

        def counting(self, producer, partitions):
            asked.append(len(partitions))
            add(self, producer, partitions)

        patch.setattr(BlockingCoordinators, "add_partitions", counting)
        with peak_memory() as peak:
            assert deliver(options, name, None, outgoing).step is Step.WRITE
    assert asked == [1_000]
    assert peak[0] < 8 << 20
    with BlockingClient(options.client) as client:
        latest = dict.fromkeys(client.partitions(topic_name), LATEST)
        deadline = time.monotonic() + 30
        rows_and_markers = 20_000 + 1_000
        while True:
            ends = client.list_offsets(latest, read_committed=True)
            if sum(each.offset for each in ends.values()) == rows_and_markers:
                break
            assert time.monotonic() < deadline
            time.sleep(0.1)
