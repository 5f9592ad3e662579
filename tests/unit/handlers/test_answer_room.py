"""What a small request is answered: each thing once, and no more than an answer has room for."""

from types import SimpleNamespace

import pytest

from ottla.coordinator.group.coordinator import FetchedOffset, ListedGroup
from ottla.coordinator.group.offsets.committed import CommittedOffset
from ottla.coordinator.transaction.transaction import TransactionState
from ottla.env.clock import ManualClock
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.answer_room import AnswerRoom, weight
from ottla.handlers.apis.consumer_group_heartbeat import ConsumerGroupHeartbeat
from ottla.handlers.apis.describe_groups import DescribeGroups
from ottla.handlers.apis.describe_transactions import DescribeTransactions
from ottla.handlers.apis.join_group import JoinGroup
from ottla.handlers.apis.list_groups import ListGroups
from ottla.handlers.apis.list_transactions import ListTransactions
from ottla.handlers.apis.offset_fetch import OffsetFetch
from ottla.handlers.call import Call
from ottla.handlers.client import Client
from ottla.ids import TopicPartition
from ottla.pending import Pending, failed
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.sliced import Slices
from ottla.turns import Turns

NONE, REFUSED = ErrorCode.NONE, ErrorCode.INVALID_REQUEST


def call(version):
    return Call(version, "me", Client("10.0.0.9", 5000, "10.0.0.1", 9092))


def served(steps):
    """Serve to the end what needs no turn."""
    return Slices(Turns(ManualClock())).run(steps, str)


def resolved(value):
    pending = Pending()
    pending.resolve(value)
    return pending


def test_the_first_is_answered_whatever_its_size_and_the_rest_while_there_is_room():
    room = AnswerRoom(10)
    assert room.take(1_000)
    assert not room.take(1)
    assert room.is_full
    room = AnswerRoom(10)
    assert [room.take(4) for _ in range(4)] == [True, True, False, False]
    assert not AnswerRoom(10).take(11, first_is_free=False)
    assert "ottla.answer.max.elements=10" in room.refusal.why


def test_long_texts_count_as_several_elements():
    assert weight() == weight("x" * 255) == weight(None, b"") == 1
    assert weight("x" * 256, b"y" * 768) == 5


class Groups:
    """A coordinator whose every group has 100 offsets of 1,000 bytes."""

    def __init__(self):
        self.fetches = 0

    def partitions_of(self, group_id, **_):
        return resolved([("t", index) for index in range(100)])

    def fetch_offsets(self, group_id, wanted, **_):
        self.fetches += 1
        stored = CommittedOffset(1, -1, "x" * 1000, -1)
        return resolved([FetchedOffset(*key, stored) for key in wanted])


def fetched(handler, *groups, version=8):
    asked = [
        OffsetFetchRequestGroup(group_id=name, member_id=None, member_epoch=-1, topics=topics)
        for name, topics in groups
    ]
    request = OffsetFetchRequest(groups=asked, require_stable=False)
    answer = served(handler.handle(request, call(version)))
    return [
        (one.group_id, one.error_code, sum(len(topic.partitions) for topic in one.topics))
        for one in answer.groups
    ]


def test_a_group_named_again_is_answered_once():
    groups = Groups()
    handler = OffsetFetch(groups, None, elements_max=100_000)
    assert fetched(handler, *[("g", None)] * 1000, ("h", None)) == [("g", 0, 100), ("h", 0, 100)]
    assert groups.fetches == 2


def test_offsets_beyond_the_room_are_refused_by_group():
    handler = OffsetFetch(Groups(), None, elements_max=1_000)  # A group weighs 400.
    found = fetched(handler, *[(f"g{number}", None) for number in range(4)])
    assert found == [("g0", 0, 100), ("g1", 0, 100), ("g2", REFUSED, 0), ("g3", REFUSED, 0)]
    assert fetched(OffsetFetch(Groups(), None, elements_max=10), ("g", None)) == [("g", 0, 100)]


@pytest.mark.parametrize("times", [2, 1_000])
def test_a_partition_named_again_is_answered_while_there_is_room(times):
    handler = OffsetFetch(Groups(), None, elements_max=1_000)
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0] * times)]
    (found,) = fetched(handler, ("g", topics))
    assert found == (("g", 0, 2) if times == 2 else ("g", REFUSED, 0))
    single = OffsetFetchRequest(
        group_id="g",
        topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0] * times)],
        require_stable=False,
    )
    answer = served(handler.handle(single, call(7)))
    assert answer.error_code == (NONE if times == 2 else REFUSED)


def test_a_transactional_id_named_again_is_answered_once_and_what_is_too_much_refused():
    partitions = frozenset(TopicPartition("t", index) for index in range(100))
    state = SimpleNamespace(value="Ongoing")
    known = SimpleNamespace(
        partitions=partitions,
        state=state,
        timeout_ms=1,
        start_ms=1,
        producer_id=1,
        producer_epoch=1,
    )
    transactions = SimpleNamespace(describe=lambda name: known)
    handler = DescribeTransactions(transactions, elements_max=250)
    names = ["x", "x", "y", "z"]
    request = DescribeTransactionsRequest(transactional_ids=names)
    answer = served(handler.handle(request, call(0)))
    found = [(one.transactional_id, one.error_code) for one in answer.transaction_states]
    assert found == [("x", NONE), ("y", NONE), ("z", REFUSED)]


@pytest.mark.parametrize("version", [5, 6])
def test_a_classic_group_named_again_is_answered_once(version):
    asked = []

    def describe_group(name):
        asked.append(name)
        return failed(KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} not found."))

    handler = DescribeGroups(SimpleNamespace(describe_group=describe_group), elements_max=9)
    request = DescribeGroupsRequest(groups=["g", "h", "g"])
    answer = served(handler.handle(request, call(version)))
    assert [one.group_id for one in answer.groups] == ["g", "h"] == asked


def listed(count, name="g{}"):
    found = [
        ListedGroup(name.format(number), "consumer", "Empty", "classic") for number in range(count)
    ]
    return SimpleNamespace(list_groups=lambda states, types: found)


@pytest.mark.parametrize(
    ("count", "name", "is_told"),
    [(100, "g{}", True), (101, "g{}", False), (30, "g{}" + "x" * 1000, False)],
)
def test_more_groups_than_an_answer_may_hold_are_not_listed_in_part(count, name, is_told):
    handler = ListGroups(listed(count, name), elements_max=100)
    request = ListGroupsRequest(states_filter=[], types_filter=[])
    answer = served(handler.handle(request, call(5)))
    assert answer.error_code == (NONE if is_told else REFUSED)
    assert len(answer.groups) == (count if is_told else 0)


def test_more_transactions_than_an_answer_may_hold_are_not_listed_in_part():
    found = [
        SimpleNamespace(
            transactional_id=f"id{number}",
            producer_id=number,
            state=TransactionState.ONGOING if number < 100 else TransactionState.EMPTY,
            start_ms=1,
        )
        for number in range(101)
    ]
    handler = ListTransactions(
        SimpleNamespace(list_all=lambda: found), ManualClock(), elements_max=100
    )
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    answer = served(handler.handle(request, call(1)))
    assert (answer.error_code, answer.transaction_states) == (REFUSED, [])
    request = ListTransactionsRequest(
        state_filters=[TransactionState.ONGOING.value], producer_id_filters=[]
    )
    answer = served(handler.handle(request, call(1)))
    assert (answer.error_code, len(answer.transaction_states)) == (NONE, 100)


def allowed_for(version, *names):
    """Return a call of somebody who may describe what bears these names."""
    access = SimpleNamespace(
        may_list_all_groups=lambda: False,
        may_list_group=names.__contains__,
        may_list_transaction=names.__contains__,
    )
    asked = call(version)
    return asked._replace(client=asked.client._replace(access=access))


def test_an_expression_costs_nothing_for_ids_that_others_have():
    """Else it would tell of them: it was refused when they, too, were much to match."""
    found = [
        SimpleNamespace(
            transactional_id=letter * 90,
            producer_id=1,
            state=TransactionState.ONGOING,
            start_ms=1,
        )
        for letter in "abcdefgh"
    ]
    handler = ListTransactions(
        SimpleNamespace(list_all=lambda: found), ManualClock(), elements_max=100
    )
    request = ListTransactionsRequest(
        state_filters=[], producer_id_filters=[], transactional_id_pattern="(.?){900}"
    )
    answer = served(handler.handle(request, allowed_for(2, "a" * 90)))
    assert answer.error_code == NONE
    assert [one.transactional_id for one in answer.transaction_states] == ["a" * 90]
    answer = served(handler.handle(request, call(2)))
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_what_others_have_leaves_ones_own_groups_listed():
    """1,600 groups with long names refused the lists of all, also of who sees none of them."""
    handler = ListGroups(listed(1000), elements_max=100)
    request = ListGroupsRequest(states_filter=[], types_filter=[])
    answer = served(handler.handle(request, allowed_for(5, "g7", "g8")))
    assert answer.error_code == NONE
    assert [one.group_id for one in answer.groups] == ["g7", "g8"]


def test_what_others_have_leaves_ones_own_transactions_listed():
    found = [
        SimpleNamespace(
            transactional_id=f"id{number}",
            producer_id=number,
            state=TransactionState.ONGOING,
            start_ms=1,
        )
        for number in range(1000)
    ]
    transactions = SimpleNamespace(list_all=lambda: found)
    handler = ListTransactions(transactions, ManualClock(), elements_max=100)
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    answer = served(handler.handle(request, allowed_for(1, "id7")))
    assert answer.error_code == NONE
    assert [one.transactional_id for one in answer.transaction_states] == ["id7"]


def test_a_member_that_names_too_much_is_refused_before_it_is_looked_at():
    names = [f"n{number}" for number in range(11)]
    protocols = [JoinGroupRequestProtocol(name=name, metadata=b"") for name in names]
    joining = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        member_id="m",
        protocol_type="consumer",
        protocols=protocols,
    )
    answer = JoinGroup(None, None, protocols_max=10).handle(joining, call(3))
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert answer.member_id == "m"
    beating = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=names
    )
    answer = ConsumerGroupHeartbeat(None, None, names_max=10).handle(beating, call(1))
    assert answer.error_code == REFUSED
    assert "10" in answer.error_message
