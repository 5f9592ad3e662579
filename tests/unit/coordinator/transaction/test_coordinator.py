"""The coordinator over real logs: durability, restarts in the middle, timeouts."""

import errno
from collections import deque

from ottla.coordinator.group.offsets.committing import CommitRequest, TopicCommit
from ottla.coordinator.records import ProducerIdAndEpoch
from ottla.coordinator.runtime import RELOAD_SECONDS
from ottla.coordinator.shard import ShardState
from ottla.coordinator.transaction.peers import Marker
from ottla.env.clock import ManualClock
from ottla.env.executor import ManualExecutor
from ottla.env.rng import SeededRng
from ottla.errors import ErrorCode
from ottla.ids import TopicId, TopicPartition
from ottla.log.append import own
from ottla.log.log import Log
from ottla.records.compression import Codec
from ottla.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker

E = ErrorCode
OFFSETS, STATE = "__consumer_offsets", "__transaction_state"


def test_an_end_is_answered_when_it_is_durable_and_not_later(node):
    producer = node.begun()
    assert node.produced(producer) == 0
    assert node.stable() == (0, 1)
    ended = node.end(producer)
    assert not ended.is_done
    while not ended.is_done:
        node.executor.run_next()
    assert ended.value == (E.NONE, producer.producer_id, 1)
    assert node.state() == "PrepareCommit"
    assert node.stable()[0] == 0, "its marker is not durable yet"
    node.settle()
    assert node.state() == "CompleteCommit"
    assert node.stable() == (2, 2)


def test_a_decision_survives_a_restart_and_is_carried_on(node):
    producer = node.begun()
    for index in (0, 1):
        assert node.produced(producer, index) == 0
    ended = node.end(producer, commit=False)
    while not ended.is_done:
        node.executor.run_next()
    node.both.stop()  # Its markers are in the logs, or not; nobody has noted it.
    node.settle()
    node.boot()
    assert node.state() == "COORDINATOR_LOAD_IN_PROGRESS"
    node.settle()
    assert node.state() == "CompleteAbort"
    for index in (0, 1):
        stable, end = node.stable(index)
        assert stable == end


def test_a_decision_is_carried_on_though_the_load_fails_and_nobody_asks(node, monkeypatch):
    """A moment without descriptors: the transaction was open until a client named an id there."""
    producer = node.begun()
    assert node.produced(producer) == 0
    ended = node.end(producer)
    while not ended.is_done:
        node.executor.run_next()
    node.both.stop()
    node.settle()

    def refuse(*_, **__):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as context:
        context.setattr(Log, "read", refuse)
        node.boot()
        node.settle()
    node.clock.advance(RELOAD_SECONDS)
    node.settle()
    shards = list(node.transactions.runtime.shards)
    assert [shard.state for shard in shards] == [ShardState.ACTIVE] * 2
    assert node.state() == "CompleteCommit"


def test_an_open_transaction_survives_a_restart_and_times_out_by_its_start(node):
    producer = node.begun(timeout_ms=10_000)
    assert node.produced(producer) == 0
    node.clock.advance(8)
    node.restart()
    assert node.state() == "Ongoing"
    assert node.produced(producer, sequence=1) == 0
    node.clock.advance(1.9)
    node.settle()
    assert node.state() == "Ongoing"
    node.clock.advance(0.2)
    node.settle()
    assert node.state() == "CompleteAbort"
    assert node.produced(producer, sequence=2) == E.INVALID_PRODUCER_EPOCH
    assert node.stable() == (3, 3)


def test_a_clock_set_back_over_a_restart_does_not_keep_a_transaction_open(node):
    producer = node.begun(timeout_ms=10_000)
    assert node.produced(producer) == 0
    node.clock.jump_wall(-24 * 3600 * 1000)
    node.restart()
    node.clock.advance(9.9)
    node.settle()
    assert node.state() == "Ongoing"
    node.clock.advance(0.2)
    node.settle()
    assert node.state() == "CompleteAbort"
    assert node.stable() == (2, 2)


def test_the_next_transaction_waits_for_the_end_of_the_one_before(node):
    producer = node.begun()
    assert node.produced(producer) == 0
    ended = node.end(producer)
    while not ended.is_done:
        node.executor.run_next()
    following = producer._replace(producer_epoch=1)
    waiting = node.produce(following)
    assert not waiting.is_done
    assert not waiting.overlaps, "nothing of it is appended yet"
    node.settle()
    assert waiting.value[0].base_offset == 2
    assert node.state() == "Ongoing"


def test_a_late_batch_of_a_transaction_that_has_ended_stays_out(node):
    producer = node.begun()
    where = TopicPartition("t", 0)
    added = node.transactions.add_partitions(producer, [where], client_version=0)
    node.settle()
    assert added.value.code is E.NONE
    ended = node.end(producer, version=0)
    large = SeededRng(1).random_bytes(100_000)
    late = node.produce(producer, value=large, version=9, compressed=Codec.LZ4)
    assert not late.is_done, "it is opened in the executor"
    node.settle()
    assert ended.value.code is E.NONE
    assert [one.code for one in late.value] == [E.NOT_ENOUGH_REPLICAS]
    assert node.state() == "CompleteCommit"
    assert node.stable() == (1, 1), "nothing but the marker: it would stay undecided for ever"


def test_only_partitions_of_the_transaction_are_written_to_by_older_clients(node):
    producer = node.begun()
    assert node.produced(producer, version=11) == E.TRANSACTION_ABORTABLE
    assert node.produced(producer, version=9) == E.INVALID_TXN_STATE
    where = TopicPartition("t", 0)
    node.transactions.add_partitions(producer, [where], client_version=0)
    node.settle()
    assert node.produced(producer, version=9) == 0
    assert node.produced(producer, 1, version=9) == E.INVALID_TXN_STATE
    assert node.produced(producer._replace(producer_epoch=1), version=9) == E.INVALID_PRODUCER_EPOCH
    other = producer._replace(producer_id=5)
    assert node.produced(other, version=9) == E.INVALID_PRODUCER_ID_MAPPING


def test_a_new_transaction_of_an_unknown_producer_begins_at_sequence_0(node):
    producer = node.begun()
    assert node.produced(producer, sequence=5) == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert node.produced(producer, sequence=0) == 0


def test_offsets_count_when_the_transaction_is_committed(node):
    producer = node.begun()
    where = TopicPartition(OFFSETS, node.runtime.partition_for("g"))
    for offset, commit in ((5, True), (9, False)):
        node.transactions.add_partitions(producer, [where], client_version=2)
        node.settle()
        committed = node.coordinator.commit_offsets(
            CommitRequest(
                "g",
                "",
                None,
                -1,
                -1,
                [TopicCommit("t", [(0, offset, -1, "m")])],
                tells_unknown_group=False,
                producer=ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch),
            )
        )
        node.settle()
        assert committed.value == [E.NONE]
        assert node.fetch("g") == ({} if commit else {("t", 0): 5})
        node.restart()
        assert node.shard("g").machine.offsets.is_pending("g", "t", 0)
        node.end(producer, commit=commit)
        node.settle()
        assert node.fetch("g") == {("t", 0): 5}
        assert not node.shard("g").machine.offsets.is_pending("g", "t", 0)
        producer = producer._replace(producer_epoch=producer.producer_epoch + 1)
    node.restart()
    assert node.fetch("g") == {("t", 0): 5}


def test_a_partition_that_was_deleted_holds_up_no_end(node):
    producer = node.begun()
    gone = TopicPartition("gone", 3)
    node.transactions.add_partitions(producer, [gone], client_version=2)
    node.settle()
    node.end(producer)
    node.settle()
    for _ in range(20):
        node.clock.advance(1)
        node.settle()
    assert node.state() == "PrepareCommit", "it may come yet"
    node.partitions_gone.add(gone)
    node.clock.advance(5)
    node.settle()
    assert node.state() == "CompleteCommit"


def test_a_fenced_producer_is_kept_out_and_its_records_are_aborted(node):
    old = node.begun()
    assert node.produced(old) == 0
    told = node.init()
    node.settle()
    assert told.value.code is E.CONCURRENT_TRANSACTIONS
    new = node.begun()
    assert (new.producer_id, new.producer_epoch) == (old.producer_id, 2)
    assert node.produced(old, sequence=1) == E.INVALID_PRODUCER_EPOCH
    late = node.end(old)
    node.settle()
    assert late.value.code is E.PRODUCER_FENCED
    assert node.stable() == (2, 2)


def test_an_id_that_waits_for_a_producer_id_lets_nobody_overtake(node):
    node.producer_ids.waiting = []
    first, second = node.init(), node.init()
    assert second.value.code is E.CONCURRENT_TRANSACTIONS
    node.producer_ids.waiting[0].resolve(7)
    node.settle()
    assert first.value == (E.NONE, 7, 0)


def test_bad_ids_and_timeouts_are_refused(node):
    assert node.init("").value.code is E.INVALID_REQUEST
    for timeout_ms in (0, -1, 900_001):
        assert node.init(timeout_ms=timeout_ms).value.code is E.INVALID_TRANSACTION_TIMEOUT
    long = node.init("\ufffd" * 20_000)
    node.settle()
    assert long.value.code is E.UNKNOWN_SERVER_ERROR


def test_ids_that_nobody_uses_are_forgotten_for_good(node):
    node.begun("idle")
    busy = node.begun("busy", timeout_ms=900_000)
    node.clock.advance(6.9 * 24 * 3600)
    assert node.produced(busy) == 0
    node.end(busy)
    node.settle()
    node.clock.advance(0.2 * 24 * 3600)
    node.settle()
    assert node.state("idle") == "TRANSACTIONAL_ID_NOT_FOUND"
    assert node.state("busy") == "CompleteCommit"
    node.restart()
    assert node.state("idle") == "TRANSACTIONAL_ID_NOT_FOUND"
    assert node.begun("idle").producer_epoch == 0


def asked_for(node, producer, *, epoch=0, coordinator_epoch=0, where=("t", 0)):
    """The code of a WriteTxnMarkers that aborts, of anybody."""
    marker = Marker(producer.producer_id, epoch, False, coordinator_epoch, 0)
    written = node.transactions.write_markers(marker, [TopicPartition(*where)])
    node.settle()
    return written.value[0]


def test_ids_that_expire_together_are_not_forgotten_in_one_turn(node):
    class BusyClock(ManualClock):
        """Each look at it tells that a millisecond has gone."""

        def monotonic(self):
            self.hold(0.001)
            return super().monotonic()

    shard = node.transactions.runtime.shard_for("x")
    found = shard.machine.transactions
    for number in range(1000):
        node.init(f"x{number}")
    node.settle()
    count = len(found)
    node.clock.jump_wall(8 * 24 * 3600 * 1000)
    quick, shard.turns.clock = shard.turns.clock, BusyClock()
    shard.machine.expire()
    assert 0 < len(shard.machine._pending) < 200 < count
    shard.turns.clock = quick
    for _ in range(2):
        node.clock.advance(0)
        node.settle()
    assert not found
    node.check()


def test_a_marker_of_a_coordinator_that_cannot_be_wedges_no_transaction(node):
    producer = node.begun()
    for coordinator_epoch in (1, 1000, 2**31 - 1):
        code = asked_for(node, producer, coordinator_epoch=coordinator_epoch)
        assert code is E.TRANSACTION_COORDINATOR_FENCED
        nobodys = producer._replace(producer_id=987_654)
        code = asked_for(node, nobodys, coordinator_epoch=coordinator_epoch)
        assert code is E.TRANSACTION_COORDINATOR_FENCED
    assert asked_for(node, producer, epoch=2) is E.INVALID_PRODUCER_EPOCH
    # A later coordinator, of which this node has not heard: it must not take that for done.
    code = asked_for(node, producer, epoch=2, coordinator_epoch=1)
    assert code is E.TRANSACTION_COORDINATOR_FENCED
    assert node.produced(producer) == 0
    ended = node.end(producer)
    node.settle()
    assert ended.value.code is E.NONE
    assert node.state() == "CompleteCommit"
    assert node.stable() == (2, 2)


def lie(node, producer, *, coordinator_epoch, where=("t", 0)):
    """Put a marker of a coordinator that never was into a log, as older versions let anybody do."""
    marker = build_end_transaction_marker(
        EndTransactionMarker(ControlType.ABORT, coordinator_epoch),
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        timestamp_ms=node.clock.wall_ms(),
    )
    appends = [(TopicPartition(*where), own(memoryview(marker)))]
    node.node.replica_manager.appends.many(appends, acks=-1, timeout_ms=30_000)
    node.settle()


def test_a_log_with_the_epoch_of_no_coordinator_takes_the_real_ones_markers(node):
    producer = node.begun()
    lie(node, producer, coordinator_epoch=1000)
    for round_ in range(2):
        assert node.produced(producer) == 0
        node.end(producer)
        node.settle()
        assert node.state() == "CompleteCommit"
        stable, end = node.stable()
        assert stable == end
        producer = producer._replace(producer_epoch=round_ + 1)


def test_offsets_under_the_epoch_of_no_coordinator_are_committed(node):
    producer = node.begun()
    where = TopicPartition(OFFSETS, node.runtime.partition_for("g"))
    lie(node, producer, coordinator_epoch=1000, where=where)
    node.transactions.add_partitions(producer, [where], client_version=2)
    node.settle()
    node.coordinator.commit_offsets(
        CommitRequest(
            "g",
            "",
            None,
            -1,
            -1,
            [TopicCommit("t", [(0, 5, -1, "m")])],
            tells_unknown_group=False,
            producer=ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch),
        )
    )
    node.settle()
    node.end(producer)
    node.settle()
    assert node.state() == "CompleteCommit"
    assert node.fetch("g") == {("t", 0): 5}


def test_an_epoch_that_another_coordinator_may_have_is_believed_for_some_tries(node):
    producer = node.begun()
    state = node.topics[STATE]
    newer = tuple(one._replace(leader_epoch=7) for one in state.partitions)
    lie(node, producer, coordinator_epoch=7)
    assert node.produced(producer) == 0
    node.topics[STATE] = state._replace(partitions=newer)  # The coordinators have not heard of it.
    node.end(producer)
    node.settle()
    assert node.state() == "PrepareCommit"
    node.clock.advance(0.5)
    node.settle()
    assert node.state() == "PrepareCommit"
    for _ in range(5):
        node.clock.advance(3)
        node.settle()
    assert node.state() == "CompleteCommit"


def stuck(make_node, **settings):
    """A node whose id ``x`` is committing for ever, and the producer's next epoch."""
    node = make_node(transactions=settings)
    producer = node.begun()
    gone = TopicPartition("gone", 3)
    node.transactions.add_partitions(producer, [gone], client_version=2)
    node.settle()
    node.end(producer)
    node.settle()
    assert node.state() == "PrepareCommit"
    return node, producer._replace(producer_epoch=1)


def test_what_waits_for_an_end_that_does_not_come_is_told_to_ask_again(make_node):
    node, following = stuck(make_node)
    waiting = node.produce(following)
    assert not waiting.is_done
    node.clock.advance(0.099)
    assert not waiting.is_done
    node.clock.advance(0.002)
    assert [one.code for one in waiting.value] == [E.CONCURRENT_TRANSACTIONS]
    node.settle()


def test_no_more_than_so_many_wait_for_an_end(make_node):
    node, following = stuck(make_node, waiting_max=3)
    waiting = [node.produce(following) for _ in range(5)]
    assert [one.is_done for one in waiting] == [False] * 3 + [True] * 2
    node.clock.advance(0.2)
    assert {one.value[0].code for one in waiting} == {E.CONCURRENT_TRANSACTIONS}
    again = node.produce(following)
    assert not again.is_done, "those that gave up make room"
    node.partitions_gone.add(TopicPartition("gone", 3))
    node.both.stop()
    assert again.is_done
    node.boot()
    node.settle()


def test_transactional_ids_are_bounded_and_those_there_are_go_on(make_node):
    node = make_node(transactions={"ids_max": 3})
    told = {}
    for number in range(30):
        asked = node.init(f"x{number}")
        node.settle()
        told[f"x{number}"] = asked.value.code
    kept = [name for name, code in told.items() if code is E.NONE]
    assert len(kept) == 6, "three of each of two shards"
    assert set(told.values()) == {E.NONE, E.POLICY_VIOLATION}
    for name in kept:
        assert node.begun(name).producer_epoch == 1
    node.clock.advance(8 * 24 * 3600)
    node.settle()
    assert node.begun("x29").producer_epoch == 0, "there is room once some have expired"


def test_transactional_ids_that_come_at_once_do_not_pass_the_limit(make_node):
    """What is on its way counts: else each connection has one more."""
    node = make_node(transactions={"ids_max": 3})
    asked = [node.init(f"x{number}") for number in range(30)]
    node.settle()
    codes = [one.value.code for one in asked]
    assert codes.count(E.NONE) == 6, "three of each of two shards"
    assert codes.count(E.POLICY_VIOLATION) == 24
    node.clock.advance(8 * 24 * 3600)
    node.settle()
    assert node.begun("x29").producer_epoch == 0, "none of them counts for ever"


def test_a_batch_that_waits_for_its_transaction_never_lands_in_a_topic_made_anew(make_node):
    node = make_node(executor=SlowExecutor())
    producer = node.begun()
    waiting = [node.produce(producer), node.produce(producer, compressed=1, value=b"v" * 100_000)]
    assert not any(one.is_done for one in waiting)
    put_back = node.executor.overtaken()
    known = node.node.led(0)
    node.node.change(known._replace(old=known.new, new=None))
    node.node.change(known._replace(topic_id=TopicId(b"another topic's!")))
    put_back()
    node.settle()
    assert [one.value[0].code for one in waiting] == [E.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert node.node.partition().log.log_end_offset == 0
    ended = node.end(producer)
    node.settle()
    assert ended.value.code is E.NONE
    assert node.state() == "CompleteCommit"


class SlowExecutor(ManualExecutor):
    """Lets the work at hand be overtaken by later work."""

    def overtaken(self):
        """Put what waits aside; return what puts it back."""
        aside, self._jobs = self._jobs, deque()
        return lambda: self._jobs.extend(aside)


def test_who_is_not_granted_the_ids_yet_says_of_no_transaction_that_it_has_ended(node):
    """It would say so of the last one, which ended alike: the next coordinator has another."""
    producer = node.begun()
    added = node.transactions.add_partitions(producer, [TopicPartition("t", 0)], client_version=0)
    node.settle()
    assert added.value.code is E.NONE
    node.end(producer, version=0)
    node.settle()
    assert node.end(producer, version=0).value.code is E.NONE, "it is said once more"
    partition = node.transactions.runtime.shard_for("x").partition
    partition.fence(partition.leader_epoch)  # As when this node registers anew.
    assert node.end(producer, version=0).value.code is E.NOT_COORDINATOR
    assert node.state() == "NOT_COORDINATOR"
