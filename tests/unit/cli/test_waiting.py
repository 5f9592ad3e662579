"""A person who waits is told what for, after a second, once, and that it is over."""

from ottla.cli.waiting import Waiting
from ottla.client.wire.errors import ConnectionFailed
from ottla.env.clock import ManualClock
from ottla.errors import ErrorCode, KafkaError

AWAY = ConnectionFailed("kafka", 9092, "connection refused", refused=True)
FULL = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")


def test_a_moment_is_not_worth_a_word(capsys):
    clock = ManualClock()
    waiting = Waiting(clock)
    for _ in range(5):
        waiting.retrying(AWAY)
        clock.advance(0.19)
    waiting.answered()
    assert capsys.readouterr().err == ""


def test_what_is_waited_for_is_said_once_and_that_it_is_over(capsys):
    clock = ManualClock()
    waiting = Waiting(clock)
    for _ in range(50):
        waiting.retrying(AWAY)
        clock.advance(0.5)
    for _ in range(10):
        waiting.retrying(FULL)
        clock.advance(0.5)
    waiting.answered()
    waiting.answered()
    assert capsys.readouterr().err.splitlines() == [
        "waiting: nothing listens on kafka:9092 (connection refused); trying again",
        "waiting: the disk is full; trying again",
        "the cluster answers again, after 30 s",
    ]
    waiting.retrying(AWAY)
    waiting.answered()
    assert capsys.readouterr().err == "", "another trouble is a new one"


def test_what_succeeds_for_one_does_not_end_the_trouble_of_another(capsys):
    """A copy reads on from its source while its target is gone."""
    clock = ManualClock()
    waiting = Waiting(clock)
    for _ in range(50):
        waiting.retrying(FULL, "the producer")
        waiting.answered("the fetcher")
        clock.advance(0.1)
    assert capsys.readouterr().err == "waiting: the disk is full; trying again\n"
    waiting.answered("the producer")
    assert capsys.readouterr().err == "the cluster answers again, after 5 s\n"


def test_who_gave_up_keeps_nobody_from_going_on(capsys):
    clock = ManualClock()
    waiting = Waiting(clock)
    for _ in range(20):
        waiting.retrying(AWAY, "one")
        waiting.retrying(AWAY, "other")
        clock.advance(0.1)
    waiting.gave_up("one")
    capsys.readouterr()
    waiting.answered("other")
    assert capsys.readouterr().err == "the cluster answers again, after 2 s\n"
