"""Fetch sessions (KIP-227): what an answer holds, and when a session ends, as in a live Kafka."""

import weakref

import pytest

from ottla.env.rng import SeededRng
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.fetch_session import FetchSession, FetchSessionCache
from ottla.ids import TopicId
from ottla.metadata.image import PartitionChange
from ottla.pending import Pending
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

FINAL, INITIAL = -1, 0
OTHER_ID = TopicId(b"another topic id")


def wanted(*parts, topic="t", partition_max_bytes=10**6):
    return FetchTopic(
        **({"topic": topic} if isinstance(topic, str) else {"topic_id": topic}),
        partitions=[
            FetchPartition(
                partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes
            )
            for index, offset in parts
        ],
    )


def unwanted(*indexes, topic="t"):
    ident = {"topic": topic} if isinstance(topic, str) else {"topic_id": topic}
    return ForgottenTopic(**ident, partitions=list(indexes))


class Client:
    """Sends what it is told to, in the session that the broker gave it."""

    def __init__(self, broker, version=12):
        self.broker = broker
        self.version = version
        self.session_id = 0
        self.epoch = INITIAL

    def begin(self, *topics, **fields):
        self.session_id, self.epoch = 0, INITIAL
        return self.go_on(*topics, **fields)

    def go_on(self, *topics, max_wait_ms=0, **fields):
        asked = {"session_id": self.session_id, "session_epoch": self.epoch, **fields}
        request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=list(topics), **asked)
        answer = self.broker.fetch(request, self.version)
        if not isinstance(answer, Pending):
            self.session_id = answer.session_id or self.session_id
            self.epoch += answer.error_code == 0
        return answer


def told(answer):
    """Of each partition told of: its index, its code and whether there is data."""
    return [
        (part.partition_index, part.error_code, bool(part.records))
        for topic in answer.responses
        for part in topic.partitions
    ]


@pytest.fixture
def broker(serve, words):
    """Two batches of one record in each of three partitions."""
    broker = serve(flush_messages=words.ASYNC_FLUSH, partitions=3)
    for index in (0, 0, 1, 1, 2, 2):
        broker.node.append((index, words.batch(b"x" * 1000)))
    return broker


@pytest.fixture
def client(broker):
    return Client(broker)


def test_a_first_answer_is_complete_and_later_ones_tell_what_is_new(broker, client, words):
    assert told(client.begin(wanted((0, 2), (1, 0)))) == [(0, 0, False), (1, 0, True)]
    assert client.session_id > 0
    assert told(client.go_on(wanted((1, 2)))) == []
    broker.node.append((0, words.batch(b"new")))
    assert told(client.go_on()) == [(0, 0, True)]
    assert told(client.go_on()) == [(0, 0, True)], "as long as the client does not move on"
    assert told(client.go_on(wanted((0, 3)))) == []


def test_a_moved_log_start_is_told_without_data(broker, client):
    client.begin(wanted((0, 2), (1, 2)))
    broker.node.partition(1).log.log_start_offset = 1
    assert told(client.go_on()) == [(1, 0, False)]
    assert told(client.go_on()) == []


def test_errors_are_told_every_time_and_their_end_too(client):
    client.begin(wanted((0, 2), (1, 2)))
    assert told(client.go_on(wanted((0, 99)))) == [(0, 1, False)]
    assert told(client.go_on()) == [(0, 1, False)]
    assert told(client.go_on(wanted((0, 2)))) == [(0, 0, False)]
    assert told(client.go_on()) == []


def test_partitions_join_and_leave(client):
    client.begin(wanted((0, 2)))
    assert told(client.go_on(wanted((1, 2)))) == [(1, 0, False)]
    assert told(client.go_on(wanted((1, 0)), forgotten_topics_data=[unwanted(1)])) == []
    assert told(client.go_on()) == []


def test_forgetting_everything_ends_the_session(client):
    client.begin(wanted((0, 2), (1, 2)))
    answer = client.go_on(forgotten_topics_data=[unwanted(0, 1, 2)])
    assert (answer.error_code, answer.session_id, answer.responses) == (0, 0, [])
    assert client.go_on().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_may_begin_empty(client):
    assert told(client.begin()) == []
    assert client.session_id > 0
    assert told(client.go_on(wanted((0, 0)))) == [(0, 0, True)]


def test_a_wrong_epoch_is_refused_and_changes_nothing(client):
    client.begin(wanted((0, 2), (1, 2)))
    answer = client.go_on(wanted((0, 0)), session_epoch=9)
    assert (answer.error_code, answer.session_id, answer.responses) == (71, 0, [])
    assert told(client.go_on()) == []


def test_epochs_begin_again_at_one():
    sessions = FetchSessionCache(SeededRng(1), slots=1, partitions_max=10)
    session = FetchSession(uses_topic_ids=False)
    sessions.add(session, 0.0)
    session.epoch = 2**31 - 1
    sessions.advance(session, 1.0)
    assert session.epoch == 1


@pytest.mark.parametrize(("session_id", "epoch"), [(12345, 1), (0, 1), (0, -5)])
def test_an_unknown_session_is_70(broker, session_id, epoch):
    answer = Client(broker).go_on(wanted((0, 0)), session_id=session_id, session_epoch=epoch)
    assert (answer.error_code, answer.session_id, answer.responses) == (70, 0, [])


@pytest.mark.parametrize("epoch", [INITIAL, FINAL])
def test_a_full_fetch_ends_the_session_that_it_names(broker, client, epoch):
    client.begin(wanted((0, 2)))
    answer = Client(broker).go_on(wanted((0, 0)), session_id=client.session_id, session_epoch=epoch)
    assert told(answer) == [(0, 0, True)]
    assert bool(answer.session_id) == (epoch == INITIAL)
    assert client.go_on().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize(("first", "then"), [(12, 13), (13, 12)])
def test_names_and_ids_do_not_mix(broker, topic_id, first, then):
    client = Client(broker, first)
    client.begin(wanted((0, 2), topic="t" if first < 13 else topic_id))
    client.version = then
    answer = client.go_on()
    assert (answer.error_code, answer.session_id) == (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 0)
    client.version = first
    assert client.go_on().error_code == 0


def test_a_small_answer_does_not_starve_the_last_partition(client):
    def next_told():
        return told(client.go_on(max_bytes=10))

    client.begin(wanted((0, 0), (1, 0), (2, 0)), max_bytes=10)
    assert [next_told() for _ in range(4)] == [[(index, 0, True)] for index in (0, 1, 2, 0)]


def test_unknown_partitions_are_told_until_they_are_there(broker, client):
    client.begin(wanted((0, 2), (3, 0)), max_wait_ms=0)
    assert told(client.go_on()) == [(3, 3, False)]
    broker.node.change(broker.node.led(3))
    assert told(client.go_on()) == [(3, 0, False)]
    assert told(client.go_on()) == []


def test_a_topic_id_becomes_known(broker, topic_id):
    del broker.image.names[topic_id]
    client = Client(broker, 13)
    assert told(client.begin(wanted((0, 0), topic=topic_id))) == [(0, 100, False)]
    assert told(client.go_on()) == [(0, 100, False)]
    broker.image.names[topic_id] = "t"
    assert told(client.go_on()) == [(0, 0, True)]


def test_a_topic_made_anew_is_not_served_under_the_old_id(broker, topic_id):
    client = Client(broker, 13)
    client.begin(wanted((0, 0), topic=topic_id))
    state = broker.node.partition().state
    broker.node.change(PartitionChange("t", topic_id, 0, state, None))
    del broker.image.names[topic_id]
    for _ in range(3):
        assert told(client.go_on()) == [(0, 3, False)]
    broker.image.names[OTHER_ID] = "t"
    broker.node.change(PartitionChange("t", OTHER_ID, 0, None, state))
    for _ in range(3):
        assert told(client.go_on()) == [(0, 103, False)]
    assert told(client.begin(wanted((0, 0), topic=topic_id))) == [(0, 100, False)]


def test_a_topic_made_anew_between_two_fetches_is_another(broker, topic_id):
    client = Client(broker, 13)
    client.begin(wanted((0, 0), topic=topic_id))
    state = broker.node.partition().state
    broker.node.change(PartitionChange("t", topic_id, 0, state, None))
    broker.node.change(PartitionChange("t", OTHER_ID, 0, None, state))
    assert told(client.go_on()) == [(0, ErrorCode.INCONSISTENT_TOPIC_ID, False)]


@pytest.mark.parametrize("names_it", [False, True])
def test_by_name_too_an_offset_of_the_old_topic_reads_nothing_of_the_new_one(
    broker, words, names_it, topic_id
):
    client = Client(broker)
    assert told(client.begin(wanted((0, 1)))) == [(0, 0, True)]
    state = broker.node.partition().state
    broker.node.change(PartitionChange("t", topic_id, 0, state, None))
    broker.node.change(PartitionChange("t", OTHER_ID, 0, None, state))
    for _ in range(5):
        broker.node.append((0, words.batch(b"new")))
    asked = [wanted((0, 2))] if names_it else []
    assert told(client.go_on(*asked)) == [(0, 3, False)], "as if it had been asked in between"
    assert told(client.go_on(wanted((0, 0)))) == [(0, 0, True)], "now the client knows"


def test_a_waiting_fetch_tells_what_woke_it(broker, client, words):
    client.begin(wanted((0, 2), (1, 2)))
    answer = client.go_on(max_wait_ms=500)
    assert not answer.is_done
    broker.node.append((1, words.batch(b"new")))
    assert told(answer.value) == [(1, 0, True)]
    assert answer.value.session_id == client.session_id


def test_a_waiting_fetch_loses_against_a_later_one(broker, client):
    client.begin(wanted((0, 2)))
    answer = client.go_on(max_wait_ms=500)
    client.epoch += 1
    assert client.go_on().error_code == 0
    broker.node.clock.advance(0.6)
    assert (answer.value.error_code, answer.value.responses) == (71, [])


def test_a_waiting_fetch_is_answered_when_its_session_was_evicted(serve, words):
    broker = serve(flush_messages=words.ASYNC_FLUSH, slots=1)
    client = Client(broker)
    client.begin(wanted((0, 0)))
    answer = client.go_on(max_wait_ms=1000)
    Client(broker).go_on(session_id=client.session_id, session_epoch=FINAL)
    broker.node.clock.advance(1.1)
    assert (answer.value.error_code, told(answer.value)) == (0, [])
    client.epoch += 1
    assert client.go_on().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_without_room_answers_are_complete(serve, words):
    broker = serve(flush_messages=words.ASYNC_FLUSH, slots=0)
    client = Client(broker)
    assert told(client.begin(wanted((0, 0)))) == [(0, 0, False)]
    assert client.session_id == 0


IMPOSSIBLE = "n" * 250
"""Longer than a topic's name can be; it might have 32 KB."""


def test_names_that_no_topic_can_have_are_not_remembered(client):
    answer = client.begin(wanted((0, 0)), wanted((0, 0), topic=IMPOSSIBLE))
    assert told(answer) == [(0, 0, True), (0, 3, False)]
    assert client.session_id == 0
    client.begin(wanted((0, 0)))
    answer = client.go_on(wanted((0, 0), topic=IMPOSSIBLE))
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [FINAL, INITIAL])
@pytest.mark.parametrize("named", [[IMPOSSIBLE], [f"no-{number}" for number in range(1001)]])
def test_a_fetch_of_thousands_of_unknown_names_does_not_wait(client, epoch, named):
    unknown = [wanted((0, 0), topic=name) for name in named]
    answer = client.go_on(wanted((0, 2)), *unknown, session_epoch=epoch, max_wait_ms=500)
    assert told(answer) == [(0, 0, False)] + [(0, 3, False)] * len(named)


# Who gives way.


def session_of(size):
    session = FetchSession(uses_topic_ids=False)
    session.update([wanted(*((index, 0) for index in range(size)))], ())
    return session


def cache_of(*sizes, partitions_max=100):
    """Return a full cache and its sessions, all made and used at second 0."""
    sessions = FetchSessionCache(SeededRng(1), slots=len(sizes), partitions_max=partitions_max)
    made = [session_of(size) for size in sizes]
    for session in made:
        sessions.add(session, 0.0)
    return sessions, made


def is_kept(sessions, session):
    try:
        sessions.get(session.session_id, session.epoch, uses_topic_ids=False)
    except KafkaError:
        return False
    return True


def test_young_sessions_are_not_evicted():
    sessions, made = cache_of(1, 1)
    late = session_of(50)
    sessions.add(late, 120.0)
    assert late.session_id == 0
    assert all(is_kept(sessions, session) for session in made)


def test_the_stalest_session_gives_way():
    sessions, (first, second) = cache_of(9, 1)
    sessions.advance(first, 60.0)
    late = session_of(1)
    sessions.add(late, 121.0)
    assert [is_kept(sessions, s) for s in (first, second, late)] == [True, False, True]


@pytest.mark.parametrize(("size", "gives_way"), [(1, False), (2, True), (9, True)])
def test_an_old_session_in_use_gives_way_to_one_as_large(size, gives_way):
    sessions, (larger, smaller) = cache_of(5, 2)
    for session in (larger, smaller):
        sessions.advance(session, 130.0)
    late = session_of(size)
    sessions.add(late, 131.0)
    assert is_kept(sessions, late) == gives_way
    assert is_kept(sessions, smaller) != gives_way
    assert is_kept(sessions, larger)


def test_all_sessions_together_have_a_limit_of_partitions():
    sessions, (first,) = cache_of(4, partitions_max=4)
    assert sessions.partition_count == 4
    first.update([wanted((9, 0))], ())
    with pytest.raises(KafkaError):
        sessions.advance(first, 1.0)
    assert (len(sessions), sessions.partition_count) == (0, 0)
    larger = session_of(5)
    sessions.add(larger, 999.0)
    assert larger.session_id == 0


def test_a_session_that_is_mostly_refused_does_not_begin_or_go_on():
    from ottla.handlers.fetch_session import REFUSED_MAX

    sessions = FetchSessionCache(SeededRng(1), slots=5, partitions_max=10**6)
    session = session_of(REFUSED_MAX + 1)
    sessions.add(session, 0.0)
    assert len(sessions) == 0
    session = session_of(REFUSED_MAX)
    sessions.add(session, 0.0)
    assert len(sessions) == 1


def test_thousands_of_old_sessions_give_way_to_one_large():
    sessions = FetchSessionCache(SeededRng(1), slots=5000, partitions_max=5000)
    for _ in range(5000):
        sessions.add(session_of(1), 0.0)
    large = session_of(4900)
    for partition in large.plan().refused:
        partition.refusal = None
    large._plan = None
    sessions.add(large, 1000.0)
    assert large.session_id
    assert sessions.partition_count <= 5000


def test_a_session_keeps_no_decisions_of_a_connection_that_is_gone():
    from ottla.ids import Principal
    from ottla.security.access import Access
    from ottla.security.authorizer import Authorizer

    def access_of():
        return Access(authorizer, Principal("User", "a"), "10.0.0.1", lambda *_: None)

    authorizer = Authorizer(is_open=True)
    session, access = session_of(1), access_of()
    session.allow(access, authorizer.epoch)
    assert session.is_allowed_for(access)
    assert not session.is_allowed_for(access_of())
    gone = weakref.ref(access)
    del access
    assert gone() is None
    assert not session.is_allowed_for(access_of())
