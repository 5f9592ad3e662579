"""What a node does for partitions of several replicas: sessions of followers, and a lost disk."""

from errno import EIO
from types import SimpleNamespace

import pytest

from ottla.env.rng import SeededRng
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import INT64_MAX, LeaderEpoch, NodeId, TopicId, TopicPartition
from ottla.pending import Pending
from ottla.replication.fetch import FetchLimits, FetchSpec, Isolation
from ottla.replication.fetcher import FetcherSettings
from ottla.replication.follower import Asked
from ottla.replication.follower_session import FORGOTTEN_SECONDS, UNHEARD_SECONDS, FollowerSpec
from ottla.replication.follower_sessions import NEWLY_LED_SECONDS
from ottla.replication.replicas import ReplicaPorts, Replicas
from tests.unit.replication.conftest import TOPIC_ID

OTHER = NodeId(2)
REGISTERED = 7
WHERE = TopicPartition("t", 0)


class Leading:
    """A node that leads a partition which node 2 follows."""

    def __init__(self, node):
        self.node = node
        self.handed_over = []
        self.live = {NodeId(1), OTHER}
        self.replicas = node.replica_manager.replicas = Replicas(
            node.replica_manager,
            node.log_manager,
            node.replica_manager.leader_of,
            ReplicaPorts(
                None,
                lambda *_: Pending(),
                lambda *told, leader_syncs: self.handed_over.append(told),
                SimpleNamespace(look_at=lambda _: None, stop=lambda: None),
                node.clock,
                node.clock,
                node.executor,
                SeededRng(1).random_below,
                lambda: self.live,
                node.replica_manager.hosting.make_anew,
            ),
            fetching=FetcherSettings(500, 1, 1 << 20, 10 << 20, 1000),
            lag_max_ms=10_000,
        )
        partition = node.partition()
        node.change(node.led(0, epoch=1, isr=(1, 2), old=partition.state))
        self.sessions = self.replicas.sessions

    def spec(self, offset, *, epoch=1, last_epoch=1, max_bytes=1 << 20, start=0, known=INT64_MAX):
        asked = Asked(0, NodeId(-1), LeaderEpoch(epoch), REGISTERED, offset, last_epoch)
        return FollowerSpec(WHERE, TOPIC_ID, asked, max_bytes, start, known)

    def ask(self, session, *specs, max_bytes=1 << 20):
        for spec in specs:
            session.name(spec)
        return [one for one in self.sessions.read(session, max_bytes) if one is not None]

    def go_on(self, session):
        return self.sessions.go_on(
            OTHER, REGISTERED, session_id=session.session_id, epoch=session.epoch
        )


@pytest.fixture
def leading(make_node):
    return Leading(make_node(partitions=1))


def test_news_are_told_once_and_again_when_something_moves(leading, words):
    session = leading.sessions.begin(OTHER, REGISTERED)
    (first,) = leading.ask(session, leading.spec(0, last_epoch=-1))
    assert (first.found.high_watermark, first.found.region) == (0, None)
    assert not leading.ask(leading.go_on(session), leading.spec(0, last_epoch=-1))
    waiting = leading.node.append((0, words.batch(b"x")))
    leading.node.executor.run_all()
    (second,) = leading.ask(leading.go_on(session))
    assert second.found.region.length_bytes > 0
    assert not waiting.is_done
    (third,) = leading.ask(leading.go_on(session), leading.spec(1))
    assert third.found.high_watermark == 1
    assert waiting.is_done, "the follower has it"


def test_a_wait_ends_with_the_next_append_or_with_its_time(leading, words):
    session = leading.sessions.begin(OTHER, REGISTERED)
    leading.ask(session, leading.spec(0, last_epoch=-1))
    waiting = leading.sessions.wait(session, 0.5)
    leading.node.append((0, words.batch(b"x")))
    assert not waiting.is_done, "what else comes in this turn goes along"
    leading.node.clock.advance(0)
    assert waiting.is_done
    leading.ask(leading.go_on(session), leading.spec(1))
    waiting = leading.sessions.wait(session, 0.5)
    leading.node.clock.advance(0.4)
    assert not waiting.is_done
    leading.node.clock.advance(0.1)
    assert waiting.is_done


def test_a_wait_ends_at_once_when_what_is_due_is_led_elsewhere_by_now(leading, words):
    """A request is served in steps, so leadership may move between its reading and its wait."""
    session = leading.sessions.begin(OTHER, REGISTERED)
    leading.ask(session, leading.spec(0, last_epoch=-1))
    leading.node.append((0, words.batch(b"x")))
    state = leading.node.partition().state
    leading.node.change(leading.node.led(0, leader=NodeId(-1), epoch=2, isr=(2,), old=state))
    waiting = leading.sessions.wait(session, 0.5)
    leading.node.clock.advance(0)
    assert waiting.is_done


def let_go(leading, session):
    """Return whether the next wait of a follower ends within NEWLY_LED_SECONDS."""
    waiting = leading.sessions.wait(leading.go_on(session), 0.5)
    leading.node.clock.advance(NEWLY_LED_SECONDS)
    leading.node.clock.advance(0)
    return waiting.is_done


def test_a_follower_is_let_go_until_it_has_heard_what_it_should_follow(leading, words):
    """It asked too early once, and the first record of a new topic waited for half a second."""
    session = leading.sessions.begin(OTHER, REGISTERED)
    waiting = leading.sessions.wait(session, 0.5)
    leading.node.clock.advance(1)
    assert waiting.is_done
    waiting = leading.sessions.wait(leading.go_on(session), 0.5)
    leading.node.append((0, words.batch(b"x")))
    leading.node.clock.advance(0)
    assert waiting.is_done, "perhaps it has heard of it by now"
    assert let_go(leading, session)
    assert let_go(leading, session)
    (news,) = leading.ask(leading.go_on(session), leading.spec(0, last_epoch=-1))
    assert news.found.region is not None
    leading.ask(leading.go_on(session), leading.spec(1))
    assert not let_go(leading, session), "it follows"


def test_a_follower_that_does_not_ask_for_long_is_let_go_no_more(leading, words):
    session = leading.sessions.begin(OTHER, REGISTERED)
    leading.node.append((0, words.batch(b"x")))
    count = 0
    while let_go(leading, session):
        count += 1
        assert count <= UNHEARD_SECONDS / NEWLY_LED_SECONDS
    leading.node.append((0, words.batch(b"y")))
    assert not let_go(leading, session), "its disk may be broken"
    leading.node.clock.advance(FORGOTTEN_SECONDS)
    assert not let_go(leading, session)
    leading.node.append((0, words.batch(b"z")))
    assert let_go(leading, session)


def append_and_acknowledge(leading, words):
    """Append one record; return the session, in which the follower has said that it has it."""
    session = leading.sessions.begin(OTHER, REGISTERED)
    leading.ask(session, leading.spec(0, last_epoch=-1))
    leading.node.append((0, words.batch(b"x")))
    leading.node.executor.run_all()
    leading.ask(leading.go_on(session))
    return session


def test_a_high_watermark_alone_makes_no_answer_and_goes_along_with_the_next(leading, words):
    session = append_and_acknowledge(leading, words)
    (told,) = leading.ask(leading.go_on(session), leading.spec(1))
    assert (told.is_quiet, told.found.high_watermark) == (True, 1)
    (again,) = leading.ask(session)
    assert again.is_quiet, "it was not told yet"
    leading.node.append((0, words.batch(b"y")))
    (news,) = leading.ask(session)
    assert (news.is_quiet, news.found.high_watermark) == (False, 1)
    assert not leading.ask(session, leading.spec(1))[0].is_quiet, "named anew, it is read anew"


def test_a_quiet_one_that_was_told_is_not_told_again(leading, words):
    session = append_and_acknowledge(leading, words)
    (told,) = leading.ask(leading.go_on(session), leading.spec(1))
    session.told(told)
    assert not session.due
    assert not leading.ask(leading.go_on(session))
    session.name(leading.spec(1))
    session.told(told)
    assert WHERE in session.due, "it was told of an older request"


def test_a_moved_high_watermark_is_told_at_once_where_consumers_wait_for_it(leading, words):
    session = leading.sessions.begin(OTHER, REGISTERED)
    leading.ask(session, leading.spec(0, last_epoch=-1))
    leading.node.append((0, words.batch(b"x")))
    assert not leading.ask(leading.go_on(session), leading.spec(1, known=0))
    waiting = leading.sessions.wait(session, 0.5)
    leading.node.executor.run_all()
    leading.node.clock.advance(0)
    assert waiting.is_done, "the leader has synced it, too"
    (told,) = leading.ask(session)
    assert (told.is_quiet, told.found.high_watermark) == (False, 1)


def test_a_fetch_that_has_waited_is_not_noted_a_second_time(leading, words):
    session = append_and_acknowledge(leading, words)
    leading.ask(leading.go_on(session), leading.spec(1))
    (_, before), *_ = leading.node.partition().view.remotes
    leading.node.clock.advance(0.4)
    leading.node.append((0, words.batch(b"y")))
    assert [one for one in leading.sessions.read(session, 1 << 20, is_heard=True) if one]
    (_, after), *_ = leading.node.partition().view.remotes
    assert after == before, "it came then, and said what was true then"


def test_what_has_no_room_is_told_with_the_next_answer(leading, words):
    session = leading.sessions.begin(OTHER, REGISTERED)
    leading.node.append((0, words.batch(b"x")))
    told = leading.ask(session, leading.spec(0, last_epoch=-1), max_bytes=0)
    assert all(one.found.region is None for one in told)
    (later,) = leading.ask(leading.go_on(session))
    assert later.found.region is not None


def test_a_batch_that_is_larger_than_the_room_left_is_told_with_the_next_answer(make_node, words):
    """It waited until the partition was looked at again as time goes on: up to a second."""
    node = make_node(partitions=2)
    leading = Leading(node)
    node.change(node.led(1, epoch=1, isr=(1, 2), old=node.partition(1).state))
    node.append((0, words.batch(b"x")), (1, words.batch(b"x" * 1000)))
    session = leading.sessions.begin(OTHER, REGISTERED)
    first = leading.spec(0, last_epoch=-1)
    other = first._replace(where=TopicPartition("t", 1))
    told = leading.ask(session, first, other, max_bytes=500)
    assert [one.found.region is not None for one in told] == [True, False]
    assert leading.sessions.wait(leading.go_on(session), 0.5)
    node.clock.advance(0)
    assert session.waiting is None, "there is more"
    told = leading.ask(leading.go_on(session), max_bytes=500)
    assert [one.spec for one in told if one.found.region] == [other]


def test_what_is_said_with_a_cut_is_said_again(leading, words):
    """A follower takes neither from a leader of whose log it has not cut all that differs."""
    for value in (b"x", b"y", b"z"):
        leading.node.append((0, words.batch(value)))
    leading.node.executor.run_all()
    session = leading.sessions.begin(OTHER, REGISTERED)
    leading.ask(session, leading.spec(3))
    leading.node.partition().delete_records(2)
    (cut,) = leading.ask(leading.go_on(session), leading.spec(4, last_epoch=1))
    assert cut.found.diverging is not None
    (told,) = leading.ask(leading.go_on(session), leading.spec(3))
    assert (told.found.high_watermark, told.found.log_start_offset) == (3, 2)


def test_a_log_start_that_a_follower_did_not_take_is_said_again(leading, words):
    """What is answered to a request that is not its newest it drops."""
    leading.node.append((0, words.batch(b"x")))
    leading.node.executor.run_all()
    session = leading.sessions.begin(OTHER, REGISTERED)
    leading.ask(session, leading.spec(1))
    leading.node.partition().delete_records(1)
    leading.sessions.start_moved(WHERE)
    for _ in range(2):
        (told,) = leading.ask(leading.go_on(session), leading.spec(1))
        assert told.found.log_start_offset == 1
    assert not leading.ask(leading.go_on(session), leading.spec(1, start=1))


def test_a_follower_without_space_is_woken_for_all_but_records(leading, words):
    session = leading.sessions.begin(OTHER, REGISTERED)
    leading.ask(session, leading.spec(0, last_epoch=-1, max_bytes=0))
    waiting = leading.sessions.wait(session, 0.5)
    leading.node.append((0, words.batch(b"x")))
    leading.node.executor.run_all()
    leading.node.clock.advance(0)
    assert not waiting.is_done, "there is nothing that it would take"
    assert not leading.ask(leading.go_on(session), leading.spec(0, last_epoch=-1, max_bytes=0))
    waiting = leading.sessions.wait(session, 0.5)
    leading.sessions.start_moved(WHERE)
    leading.node.clock.advance(0)
    assert waiting.is_done
    (told,) = leading.ask(leading.go_on(session), leading.spec(0, last_epoch=-1))
    assert told.found.region is not None, "it has space again"


def test_an_epoch_that_is_over_is_refused_and_no_more_looked_at(leading):
    session = leading.sessions.begin(OTHER, REGISTERED)
    (told,) = leading.ask(session, leading.spec(0, epoch=0, last_epoch=-1))
    assert told.found.code is ErrorCode.FENCED_LEADER_EPOCH
    assert not session.partitions


def test_a_request_out_of_order_does_not_go_on_with_a_session(leading):
    session = leading.sessions.begin(OTHER, REGISTERED)
    leading.go_on(session)
    with pytest.raises(KafkaError) as error:
        leading.sessions.go_on(OTHER, REGISTERED, session_id=session.session_id, epoch=1)
    assert error.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    for broker_epoch, session_id in ((8, session.session_id), (REGISTERED, 1)):
        with pytest.raises(KafkaError) as error:
            leading.sessions.go_on(OTHER, broker_epoch, session_id=session_id, epoch=2)
        assert error.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_caught_up_follower_is_looked_at_again_as_time_goes_on(leading):
    session = leading.sessions.begin(OTHER, REGISTERED)
    leading.ask(session, leading.spec(0, last_epoch=-1))
    (_, before), *_ = leading.node.partition().view.remotes
    leading.node.clock.advance(2)
    leading.ask(leading.go_on(session))
    (_, after), *_ = leading.node.partition().view.remotes
    assert after.caught_up_at_ms == before.caught_up_at_ms + 2000


def test_another_replica_is_to_lead_when_the_disk_fails(leading):
    leading.node.log_manager.fail_directory("/data", OSError(EIO, "broken"))
    leading.node.clock.advance(0)
    ((where, topic_id, state, minimum),) = leading.handed_over
    assert (where, topic_id, state.leader, minimum) == (WHERE, TOPIC_ID, 1, 1)


def test_another_replica_is_to_lead_until_this_one_does_not(leading):
    """At the first time it may be away, or the store; a fault of ours fails no directory."""
    leading.node.partition().log.end_by_fault(RuntimeError("a fault of ours"))
    leading.node.clock.advance(10)
    assert len(leading.handed_over) > 2
    old = leading.node.partition().state
    leading.node.change(leading.node.led(0, epoch=2, leader=NodeId(-1), isr=(1, 2), old=old))
    leading.handed_over.clear()
    leading.node.clock.advance(10)
    assert leading.handed_over == []


# Records that followers have to delete, too.


def deleted(leading, words, offset=1):
    """Delete on the leader what is committed; return it."""
    session = leading.sessions.begin(OTHER, REGISTERED)
    leading.ask(session, leading.spec(0, last_epoch=-1))
    leading.node.append((0, words.batch(b"x", b"y")))
    leading.node.executor.run_all()
    leading.ask(leading.go_on(session), leading.spec(2))
    partition = leading.node.partition()
    assert partition.delete_records(offset) == offset
    return session, partition


def test_a_deletion_is_done_when_all_live_followers_have_deleted_too(leading, words):
    session, partition = deleted(leading, words)
    news = leading.sessions.wait(leading.go_on(session), 0.5)
    waiting = leading.replicas.low_watermarks.wait([(partition, 1)], 1000)
    leading.node.clock.advance(0)
    assert news.is_done, "the follower hears of it at once"
    assert not waiting.is_done
    leading.ask(leading.go_on(session), leading.spec(2, start=1))
    leading.replicas.low_watermarks.look_at(WHERE)
    assert waiting.value == [(1, ErrorCode.NONE)]
    assert not leading.replicas.low_watermarks._waits


def test_a_follower_that_is_gone_is_not_waited_for(leading, words):
    _, partition = deleted(leading, words)
    waiting = leading.replicas.low_watermarks.wait([(partition, 1)], 1000)
    leading.live = {NodeId(1)}
    leading.replicas.low_watermarks.look_at_all()
    assert waiting.value == [(1, ErrorCode.NONE)]


def test_the_wait_for_followers_ends_with_its_time_or_with_the_leadership(leading, words):
    _, partition = deleted(leading, words)
    marks = leading.replicas.low_watermarks
    waiting = marks.wait([(partition, 1), (partition, 0)], 1000)
    leading.node.clock.advance(1)
    assert waiting.value == [(0, ErrorCode.REQUEST_TIMED_OUT), (0, ErrorCode.NONE)]
    assert not marks._waits
    waiting = marks.wait([(partition, 1)], 1000)
    moved = leading.node.led(0, epoch=2, leader=NodeId(-1), isr=(1, 2), old=partition.state)
    leading.node.change(moved)
    assert waiting.value == [(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert not marks._waits


def test_what_a_follower_said_of_a_former_topic_of_the_name_does_not_count(leading, words):
    """It is asked for anew when the follower has heard of the new one."""
    session, partition = deleted(leading, words)
    leading.ask(leading.go_on(session), leading.spec(2, start=1))
    assert leading.sessions.start_offset_of(OTHER, partition) == 1
    partition.topic_id = TopicId(bytes(16))
    assert leading.sessions.start_offset_of(OTHER, partition) is None


# Consumers that read near by.


def test_a_follower_in_the_clients_rack_is_near_if_it_has_what_is_asked_for(leading, words):
    session = leading.sessions.begin(OTHER, REGISTERED)
    leading.ask(session, leading.spec(0, last_epoch=-1))
    leading.node.append((0, words.batch(b"x", b"y")))
    leading.node.executor.run_all()
    leading.ask(leading.go_on(session), leading.spec(1))
    partition = leading.node.partition()
    racks = {NodeId(1): "a", OTHER: "b"}

    def nearest(rack, offset, racks=racks):
        return leading.replicas.nearest(rack, racks, partition, offset)

    assert nearest("b", 0) == nearest("b", 1) == OTHER
    assert nearest("b", 2) is None, "it is not there yet"
    assert nearest("a", 0) is None, "the leader is near"
    assert nearest("c", 0) is None, "nobody is"
    assert nearest("b", 0, {NodeId(1): "a"}) is None, "it is not registered"
    assert nearest("b", 0, {NodeId(1): "b", OTHER: "b"}) is None
    leading.ask(leading.go_on(session), leading.spec(2, start=1))
    assert nearest("b", 0) is None, "it has deleted that"
    leading.node.change(leading.node.led(0, epoch=1, isr=(1,), old=partition.state))
    assert nearest("b", 1) is None, "it is not in sync"


def test_a_follower_serves_consumers_that_know_the_leader_epoch(leading, words):
    leading.node.append((0, words.batch(b"x")))
    leading.node.executor.run_all()
    partition = leading.node.partition()
    leading.node.change(leading.node.led(0, epoch=2, leader=NodeId(-1), old=partition.state))

    def fetch(epoch, **how):
        spec = FetchSpec(WHERE, 0, 1 << 20, current_leader_epoch=epoch)
        limits = FetchLimits(0, 1, 1 << 20, Isolation.READ_UNCOMMITTED, **how)
        (found,) = leading.node.replica_manager.fetch([spec], limits)
        return found

    assert fetch(2).code is ErrorCode.NOT_LEADER_OR_FOLLOWER, "an old client"
    assert fetch(2, may_follow=True).code is ErrorCode.NONE
    assert fetch(1, may_follow=True).code is ErrorCode.FENCED_LEADER_EPOCH
    assert fetch(3, may_follow=True).code is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert fetch(-1, may_follow=True).code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetch(2, may_follow=True).region is None, "not above the high watermark"
    partition.followed(1)
    assert fetch(2, may_follow=True).region.length_bytes > 0


def test_who_was_granted_the_lead_before_it_began_is_no_follower_either(leading, words):
    """It would call out of range what the next leader has; a consumer began anew then."""
    leading.node.append((0, words.batch(b"x")))
    leading.node.executor.run_all()
    partition = leading.node.partition()
    partition.fence(partition.leader_epoch)
    spec = FetchSpec(WHERE, 5, 1 << 20, current_leader_epoch=partition.leader_epoch)
    limits = FetchLimits(0, 1, 1 << 20, Isolation.READ_UNCOMMITTED, may_follow=True)
    (found,) = leading.node.replica_manager.fetch([spec], limits)
    assert found.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
