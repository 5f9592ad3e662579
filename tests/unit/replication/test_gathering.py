"""Followers are told of records when the appends that are expected have come; not much later."""

import pytest

from ottla.ids import TopicPartition
from ottla.replication.follower_sessions import GATHERED_SECONDS
from tests.unit.replication.test_replicas import OTHER, REGISTERED, Leading

TURN = 0.0


@pytest.fixture
def leading(make_node):
    return Leading(make_node(partitions=1))


def read(leading, session, *specs):
    """Return the news of a request that may wait."""
    for spec in specs:
        session.name(spec)
    found = leading.sessions.read(session, 1 << 20, may_gather=True)
    return [one for one in found if one is not None and not one.is_quiet]


@pytest.fixture
def session(leading, words):
    """The session of a follower that was told of three appends at once, and has them."""
    session = leading.sessions.begin(OTHER, REGISTERED)
    leading.ask(session, leading.spec(0, last_epoch=-1))
    for _ in range(3):
        leading.node.append((0, words.batch(b"x")))
    (news,) = leading.ask(leading.go_on(session))
    assert news.found.region is not None
    leading.node.executor.run_all()
    assert not read(leading, leading.go_on(session), leading.spec(3))
    assert leading.node.partition().high_watermark == 3
    return session


def test_a_follower_is_told_when_as_many_have_come_as_the_last_time(leading, words, session):
    waiting = leading.sessions.wait(session, 0.5)
    for _ in range(2):
        leading.node.append((0, words.batch(b"y")))
        leading.node.clock.advance(TURN)
        assert not waiting.is_done, "more are expected"
    leading.node.append((0, words.batch(b"y")))
    leading.node.clock.advance(TURN)
    assert waiting.is_done


def tell_of_one(leading, words, session):
    """Append a record where more are expected; sync it, and see the follower's wait end."""
    waiting = leading.sessions.wait(session, 0.5)
    leading.node.append((0, words.batch(b"y")))
    leading.node.executor.run_all()
    leading.node.clock.advance(TURN)
    assert waiting.is_done


def test_nothing_waits_longer_than_the_leaders_own_sync(leading, words, session):
    tell_of_one(leading, words, session)


def test_nothing_waits_for_a_slow_disk(leading, words, session):
    waiting = leading.sessions.wait(session, 0.5)
    leading.node.append((0, words.batch(b"y")))
    leading.node.clock.advance(GATHERED_SECONDS)
    leading.node.clock.advance(TURN)
    assert waiting.is_done
    assert not leading.node.partition().flush(), "it syncs still"


def test_fewer_are_expected_when_fewer_have_come(leading, words, session):
    tell_of_one(leading, words, session)
    assert leading.ask(session)
    leading.ask(leading.go_on(session), leading.spec(4))
    waiting = leading.sessions.wait(session, 0.5)
    leading.node.append((0, words.batch(b"z")))
    leading.node.clock.advance(TURN)
    assert waiting.is_done, "one came the last time"


def test_a_request_that_finds_too_few_waits_for_more(leading, words, session):
    leading.node.append((0, words.batch(b"y")))
    assert not read(leading, session)
    waiting = leading.sessions.wait(session, 0.5)
    leading.node.clock.advance(TURN)
    assert not waiting.is_done
    for _ in range(2):
        leading.node.append((0, words.batch(b"y")))
    leading.node.clock.advance(TURN)
    assert waiting.is_done
    (news,) = leading.ask(session)
    assert news.found.region is not None


def test_a_request_that_may_not_wait_gets_what_there_is(leading, words, session):
    leading.node.append((0, words.batch(b"y")))
    (news,) = leading.ask(session)
    assert news.found.region is not None


def test_what_was_put_off_goes_along_with_other_news(leading, words, session):
    """An answer leaves anyway: the records would only wait for the next one."""
    partition = leading.node.partition()
    leading.node.append((0, words.batch(b"y")))
    partition.delete_records(1)
    (news,) = read(leading, session)
    assert (news.found.log_start_offset, news.found.region) == (1, None)
    assert session.due, "the records are told next"


def test_what_was_put_off_goes_along_with_records_of_another_partition(make_node, words):
    leading = Leading(make_node(partitions=2))
    node, other = leading.node, TopicPartition("t", 1)
    node.change(node.led(1, epoch=1, isr=(1, 2), old=node.partition(1).state))
    session = leading.sessions.begin(OTHER, REGISTERED)
    ends = [leading.spec(0, last_epoch=-1), leading.spec(0, last_epoch=-1)._replace(where=other)]
    leading.ask(session, *ends)
    for _ in range(2):
        node.append((0, words.batch(b"x")))
    leading.ask(leading.go_on(session))
    node.executor.run_all()
    leading.ask(leading.go_on(session), leading.spec(2))
    node.append((0, words.batch(b"y")))
    assert not read(leading, leading.go_on(session))
    node.append((1, words.batch(b"z")))
    found = read(leading, session)
    assert [(one.spec.where.partition, one.found.region is None) for one in found] == [
        (1, False),
        (0, False),
    ]


def test_producers_that_wait_for_no_commit_are_not_waited_for(leading, words, session):
    for _ in range(2):
        leading.node.append((0, words.batch(b"y")), acks=1)
    assert leading.ask(session)
    leading.ask(leading.go_on(session), leading.spec(5))
    waiting = leading.sessions.wait(session, 0.5)
    leading.node.append((0, words.batch(b"z")), acks=1)
    leading.node.clock.advance(TURN)
    assert waiting.is_done


def test_what_gathered_while_the_log_was_held_is_told_when_it_goes_on(leading, words, session):
    """A move to another directory takes over between two flushes."""
    partition = leading.node.partition()
    waiting = leading.sessions.wait(session, 0.5)
    leading.node.append((0, words.batch(b"y")))
    partition.between_flushes(partition.hold)
    leading.node.executor.run_all()
    leading.node.clock.advance(GATHERED_SECONDS)
    leading.node.clock.advance(TURN)
    assert waiting.is_done
    assert not read(leading, session), "nothing is read while it is held"
    waiting = leading.sessions.wait(leading.go_on(session), 0.5)
    partition.log.end_hold(is_full=False)
    partition.release(partition.log)
    leading.node.clock.advance(TURN)
    assert waiting.is_done
    (news,) = leading.ask(session)
    assert news.found.region is not None
