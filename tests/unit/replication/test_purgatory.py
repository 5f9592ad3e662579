import pytest

from ottla.env.clock import ManualClock
from ottla.replication.purgatory import STALE_TICKS_MAX, TICKS_PER_SECOND, Purgatory


class Operation:
    """Completes when told so; must not be completed twice."""

    def __init__(self, name="", log=None):
        self.name = name
        self.is_ready = False
        self.tries = 0
        self.done = []
        self.log = log if log is not None else []
        self.on_done = lambda: None

    def try_complete(self, key):
        self.tries += 1
        if not self.is_ready:
            return False
        self._finish("completed")
        return True

    def expire(self):
        self._finish("expired")

    def _finish(self, how):
        self.done.append(how)
        self.log.append(self.name)
        assert len(self.done) == 1, "completed twice"
        self.on_done()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def purgatory(clock):
    return Purgatory(clock)


def assert_empty(purgatory):
    assert purgatory.watched_count == purgatory.key_count == 0
    assert purgatory._watchers == {}
    assert purgatory._due == {}
    assert len(purgatory._ticks) <= STALE_TICKS_MAX


def test_what_happened_during_a_stall_is_heard_of_before_the_patience_ends(clock, purgatory):
    done_meanwhile, never = Operation(), Operation()
    for operation in (done_meanwhile, never):
        purgatory.watch(operation, ["a"], timeout_seconds=30)
    clock.stall(60)
    assert (done_meanwhile.done, never.done) == ([], [])
    done_meanwhile.is_ready = True  # Its flush ended while nobody could hear of it.
    purgatory.check("a")
    clock.advance(1)
    assert (done_meanwhile.done, never.done) == (["completed"], ["expired"])
    assert_empty(purgatory)


def test_it_completes_when_a_key_changes(purgatory):
    operation = Operation()
    purgatory.watch(operation, ["a", "b"], timeout_seconds=1)
    purgatory.check("c")
    assert operation.tries == 0
    purgatory.check("a")
    assert (operation.tries, operation.done) == (1, [])
    operation.is_ready = True
    purgatory.check("b")
    assert operation.done == ["completed"]
    purgatory.check("a")
    assert operation.tries == 2
    assert_empty(purgatory)


def test_a_completed_operation_does_not_expire(purgatory, clock):
    operation = Operation()
    purgatory.watch(operation, ["a"], timeout_seconds=1)
    operation.is_ready = True
    purgatory.check("a")
    clock.advance(5)
    assert operation.done == ["completed"]
    assert clock.timers() == 0


def test_an_expired_operation_does_not_complete(purgatory, clock):
    operation = Operation()
    purgatory.watch(operation, ["a", "b"], timeout_seconds=1)
    clock.advance(2)
    operation.is_ready = True
    purgatory.check("a")
    assert operation.done == ["expired"]
    assert_empty(purgatory)
    assert clock.timers() == 0


@pytest.mark.parametrize("timeout", [0, -1, 0.001, 0.0049, 0.5, 1, 30.123])
@pytest.mark.parametrize("start", [0, 0.0031, 12.345, 86_400.999])
def test_it_expires_in_time_and_at_most_a_tick_late(purgatory, clock, timeout, start):
    clock.advance(start)
    operation = Operation()
    purgatory.watch(operation, ["a"], timeout_seconds=timeout)
    timeout = max(timeout, 0)
    clock.advance(max(timeout - 0.000_01, 0))
    assert operation.done == []
    clock.advance(1 / TICKS_PER_SECOND + 0.000_02)
    assert operation.done == ["expired"]


def test_every_tick_can_ring_however_its_fraction_rounds(clock):
    """29 / 200 * 200 is less than 29: asking the clock again must not ring for ever."""
    purgatory = Purgatory(clock)
    operations = [Operation() for _ in range(2000)]
    for number, operation in enumerate(operations):
        purgatory.watch(operation, ["a"], timeout_seconds=number / TICKS_PER_SECOND)
    rung = 0
    while clock.timers():
        clock.advance(1 / TICKS_PER_SECOND)
        rung += 1
        assert rung < 2100
    assert all(operation.done == ["expired"] for operation in operations)


def test_operations_of_one_key_are_tried_oldest_first(purgatory):
    log = []
    for name in "abc":
        operation = Operation(name, log)
        operation.is_ready = True
        purgatory.watch(operation, ["k"], timeout_seconds=1)
    purgatory.check("k")
    assert log == ["a", "b", "c"]


def test_a_nearer_deadline_rings_first(purgatory, clock):
    log = []
    for name, timeout in (("late", 3), ("soon", 1), ("middle", 2)):
        purgatory.watch(Operation(name, log), ["k"], timeout_seconds=timeout)
    for count in (1, 2, 3):
        clock.advance(1.01)
        assert len(log) == count
    assert log == ["soon", "middle", "late"]


def test_a_key_given_twice_is_watched_once(purgatory):
    """One produce request may name a partition twice."""
    operation = Operation()
    purgatory.watch(operation, ["a", "a", "b", "a"], timeout_seconds=1)
    purgatory.check("a")
    assert operation.tries == 1
    operation.is_ready = True
    purgatory.check("a")
    assert operation.done == ["completed"]
    assert_empty(purgatory)


def test_a_check_inside_a_completion_completes_nothing_twice(purgatory):
    first, second = Operation("first"), Operation("second")
    for operation in (first, second):
        operation.is_ready = True
        purgatory.watch(operation, ["k"], timeout_seconds=1)
    first.on_done = lambda: purgatory.check("k")
    second.on_done = lambda: purgatory.check("k")
    purgatory.check("k")
    assert (first.done, second.done) == (["completed"], ["completed"])
    assert_empty(purgatory)


def test_a_check_inside_an_expiry_completes_nothing_twice(purgatory, clock):
    first, second, third = (Operation(name) for name in "abc")
    for operation in (first, second, third):
        purgatory.watch(operation, ["k"], timeout_seconds=1)
    second.is_ready = third.is_ready = True
    first.on_done = lambda: purgatory.check("k")
    clock.advance(2)
    assert [o.done for o in (first, second, third)] == [["expired"], ["completed"], ["completed"]]
    assert_empty(purgatory)


def test_an_operation_watched_inside_a_completion_is_kept(purgatory, clock):
    first, second = Operation(), Operation()
    first.is_ready = True
    purgatory.watch(first, ["k"], timeout_seconds=1)
    first.on_done = lambda: purgatory.watch(second, ["k"], timeout_seconds=1)
    purgatory.check("k")
    assert purgatory.watched_count == 1
    clock.advance(2)
    assert second.done == ["expired"]
    assert_empty(purgatory)


def test_an_operation_watched_inside_an_expiry_is_kept(purgatory, clock):
    first, second = Operation(), Operation()
    first.on_done = lambda: purgatory.watch(second, ["k"], timeout_seconds=1)
    purgatory.watch(first, ["k"], timeout_seconds=1)
    clock.advance(1.01)
    assert (first.done, second.done) == (["expired"], [])
    clock.advance(1.01)
    assert second.done == ["expired"]
    assert_empty(purgatory)


def test_many_operations_of_many_keys_leave_nothing_behind(purgatory, clock):
    operations = []
    for number in range(3000):
        operation = Operation()
        operations.append(operation)
        keys = [number % 7, ("pair", number % 50), number]
        purgatory.watch(operation, keys, timeout_seconds=number % 13 / 10)
    assert purgatory.watched_count == 3000
    for operation in operations[::2]:
        operation.is_ready = True
    for key in range(7):
        purgatory.check(key)
    assert purgatory.watched_count == 1500
    clock.advance(2)
    assert_empty(purgatory)
    assert clock.timers() == 0
    assert all(len(operation.done) == 1 for operation in operations)
    assert {operation.done[0] for operation in operations[1::2]} == {"expired"}


def test_far_deadlines_of_completed_operations_are_forgotten(purgatory, clock):
    """A client chooses its timeout, up to 24 days: that must not be how long we remember."""
    for number in range(20_000):
        operation = Operation()
        operation.is_ready = True
        purgatory.watch(operation, ["k"], timeout_seconds=100 + number)
        purgatory.check("k")
        assert len(purgatory._ticks) <= STALE_TICKS_MAX + 3
    assert_empty(purgatory)


def test_a_watched_operation_costs_no_timer_of_its_own(purgatory, clock):
    for number in range(1000):
        purgatory.watch(Operation(), [number], timeout_seconds=1 + number / 100)
    assert clock.timers() == 1


def test_a_change_costs_only_those_who_watch_it(purgatory):
    others = [Operation() for _ in range(5000)]
    for number, operation in enumerate(others):
        purgatory.watch(operation, [("other", number)], timeout_seconds=10)
    mine = Operation()
    purgatory.watch(mine, ["mine"], timeout_seconds=10)
    purgatory.check("mine")
    assert mine.tries == 1
    assert not any(operation.tries for operation in others)


def test_a_cancelled_operation_is_forgotten_at_once(purgatory, clock):
    operations = [Operation(), Operation()]
    watches = [purgatory.watch(each, ["a", "b"], timeout_seconds=1) for each in operations]
    purgatory.cancel(watches[0])
    purgatory.cancel(watches[0])
    purgatory.check("a")
    assert [each.tries for each in operations] == [0, 1]
    clock.advance(2)
    assert [each.done for each in operations] == [[], ["expired"]]
    purgatory.cancel(watches[1])
    assert_empty(purgatory)


def test_operations_that_keep_coming_after_a_stall_do_not_keep_others_from_their_end(
    clock, purgatory
):
    """The wait after a stall began anew with each of them."""
    first = Operation()
    purgatory.watch(first, ["k"], timeout_seconds=1)
    clock.stall(10)
    for _ in range(100):
        purgatory.watch(Operation(), ["k"], timeout_seconds=60)
        clock.advance(0.01)
    assert first.done == ["expired"]
