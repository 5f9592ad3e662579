"""While markers go to many partitions, other work of the loop has its turns."""

from types import SimpleNamespace

import pytest

from ottla.coordinator.transaction.markers import PARTITIONS_PER_STEP, MarkerWriter
from ottla.coordinator.transaction.peers import Marker
from ottla.env.clock import ManualClock
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.log.results import AppendResult
from ottla.pending import Pending
from ottla.turns import Turns

MARKER = Marker(7, 1, True, 0, 2)
WRITTEN = AppendResult(0, 0, -1, 0)
REFUSED = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "")


class BusyClock(ManualClock):
    """Each look at it tells that two milliseconds have gone."""

    def monotonic(self):
        self.hold(0.002)
        return super().monotonic()


class Node:
    """A marker writer, and what it gave to the logs: one list per call, and who waits for each."""

    def __init__(self):
        self.due, self.written, self.waiting = [], [], []
        self.clock = ManualClock()
        appends = SimpleNamespace(many=self.append)
        self.elsewhere = SimpleNamespace(leader_of=lambda where: None, close=lambda: None)
        self.writer = MarkerWriter(
            SimpleNamespace(get=lambda where: None, appends=appends),
            None,
            SimpleNamespace(topic=lambda name: None, partition=lambda where: "there"),
            self.clock,
            Turns(BusyClock(), call_soon=self.due.append),
            elsewhere=self.elsewhere,
        )

    def append(self, batches, *, acks, timeout_ms):
        pending = Pending()
        some = [where for where, _ in batches]
        self.written.append(some)
        self.waiting.append((some, pending))
        return pending

    def turn(self):
        due, self.due[:] = list(self.due), []
        for turn in due:
            turn()
        return bool(due)

    def commit(self, refused=()):
        """Let all be committed that was appended, but for what is ``refused``."""
        waiting, self.waiting = self.waiting, []
        for some, pending in waiting:
            pending.resolve([REFUSED if where in refused else WRITTEN for where in some])


@pytest.fixture
def node():
    return Node()


PARTITIONS = [TopicPartition("t", index) for index in range(20 * PARTITIONS_PER_STEP + 1)]


def test_the_markers_of_a_large_transaction_are_not_written_in_one_turn(node):
    done = []
    node.writer.write_all(MARKER, PARTITIONS, lambda: True, lambda: done.append(1))
    in_turns = [len(node.written)]
    while node.turn():
        in_turns.append(len(node.written) - sum(in_turns))
    assert max(in_turns) <= 5
    assert [where for some in node.written for where in some] == PARTITIONS
    assert max(map(len, node.written)) == PARTITIONS_PER_STEP
    assert not done
    node.commit()
    assert done == [1]


def test_what_a_large_transaction_could_not_write_is_tried_again_and_nothing_else(node):
    done = []
    refused = {PARTITIONS[3], PARTITIONS[-1]}
    node.writer.write_all(MARKER, PARTITIONS, lambda: True, lambda: done.append(1))
    while node.turn():
        node.commit(refused)
    node.commit(refused)
    assert not done
    node.written.clear()
    node.clock.advance(1)
    assert node.written == [[PARTITIONS[3], PARTITIONS[-1]]]
    node.commit()
    assert done == [1]


def test_a_large_transaction_that_nobody_wants_ended_any_more_is_let_be(node):
    wanted, done = [True], []
    node.writer.write_all(MARKER, PARTITIONS, lambda: wanted[0], lambda: done.append(1))
    wanted.clear()
    wanted.append(False)
    before = len(node.written)
    while node.turn():
        pass
    node.commit()
    assert len(node.written) == before < 20
    assert not done


def test_a_transaction_that_wrote_nowhere_is_over_at_once(node):
    done = []
    node.writer.write_all(MARKER, [], lambda: True, lambda: done.append(1))
    assert done == [1]
    assert not node.written


@pytest.mark.parametrize("is_afar", [True, False], ids=["afar", "here"])
def test_a_fault_while_markers_are_written_does_not_keep_a_transaction_open_for_good(node, is_afar):
    """What asks another node may fail in ways of its own: no thread, no memory."""
    done, asked = [], []

    def write_markers(*_):
        asked.append(Pending())
        return asked[-1]

    if is_afar:
        node.elsewhere.leader_of = lambda where: 2
        node.elsewhere.is_live = lambda number: True
        node.elsewhere.peers = SimpleNamespace(write_markers=write_markers)
    node.writer.write_all(MARKER, PARTITIONS[:2], lambda: True, lambda: done.append(1))
    fault = RuntimeError("can't start new thread")
    if is_afar:
        asked[0].fail(fault)
    else:
        node.waiting.pop()[1].fail(fault)
    node.commit()
    node.clock.advance(1)
    if is_afar:
        asked[1].resolve([ErrorCode.NONE] * 2)
    node.commit()
    assert done == [1]


def test_a_fault_at_once_is_none_for_good_either(node, monkeypatch, caplog):
    done = []

    def fails(*_, **__):
        raise RuntimeError("a fault")

    with monkeypatch.context() as context:
        context.setattr(MarkerWriter, "write", fails)
        node.writer.write_all(MARKER, PARTITIONS[:2], lambda: True, lambda: done.append(1))
    assert "a fault" in caplog.text
    assert not done
    node.clock.advance(1)
    node.commit()
    assert done == [1]
