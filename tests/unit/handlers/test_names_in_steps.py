"""Handlers look at very many names in steps, also to find those that are named twice."""

from types import SimpleNamespace

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.apis.acls import DeleteAcls
from ottla.handlers.apis.alter_replica_log_dirs import AlterReplicaLogDirs
from ottla.handlers.apis.consumer_group_describe import ConsumerGroupDescribe
from ottla.handlers.apis.delete_groups import DeleteGroups
from ottla.handlers.apis.describe_groups import DescribeGroups
from ottla.handlers.apis.describe_producers import DescribeProducers
from ottla.handlers.apis.describe_transactions import DescribeTransactions
from ottla.handlers.apis.find_coordinator import FindCoordinator
from ottla.handlers.apis.list_config_resources import ListConfigResources
from ottla.handlers.apis.list_transactions import ListTransactions
from ottla.handlers.authorization.describing import describe_topic_partitions, metadata
from ottla.handlers.authorization.groups import consumer_group_describe
from ottla.ids import NULL_TOPIC_ID
from ottla.pending import Pending, failed
from ottla.protocol.messages.delete_acls import DeleteAclsFilter
from ottla.security.acl import Operation
from ottla.sliced import RUN, STRIDE

COUNT = 10 * RUN


class Names:
    """Tells how many were looked at."""

    def __init__(self):
        self.seen = 0

    def __iter__(self):
        for number in range(COUNT):
            self.seen += 1
            yield f"name {number % 7}"


def unknown(*_):
    return failed(KafkaError(ErrorCode.GROUP_ID_NOT_FOUND))


def resolved(value):
    pending = Pending()
    pending.resolve(value)
    return pending


def describe(_):
    raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)


GROUPS = SimpleNamespace(delete_group=unknown, describe_group=unknown, describe=unknown)
TRANSACTIONS = SimpleNamespace(describe=describe, list_all=list)
CLOCK = SimpleNamespace(wall_ms=lambda: 0)
HANDLERS = {
    "transactional_ids": lambda: DescribeTransactions(TRANSACTIONS, elements_max=COUNT),
    "groups_names": lambda: DeleteGroups(GROUPS),
    "group_ids": lambda: ConsumerGroupDescribe(GROUPS, None, elements_max=COUNT),
    "groups": lambda: DescribeGroups(GROUPS, elements_max=COUNT),
    "coordinator_keys": lambda: FindCoordinator(None, None, {}),
    "state_filters": lambda: ListTransactions(TRANSACTIONS, CLOCK, elements_max=COUNT),
}


@pytest.mark.parametrize("field", HANDLERS)
def test_very_many_names_are_looked_at_in_steps(field):
    names = Names()
    rest = {"include_authorized_operations": False, "key_type": 9, "key": ""}
    rest |= {"transactional_id_pattern": None, "producer_id_filters": [], "duration_filter": -1}
    request = SimpleNamespace(**(rest | {field: names}))
    call = SimpleNamespace(api_version=5, client=SimpleNamespace(access=None))
    steps = HANDLERS[field]().handle(request, call)
    assert longest_look(names, steps) <= RUN + 1


def longest_look(names, steps):
    """Run the steps; return how many names were looked at between two of them."""
    longest = before = 0
    waited = None
    while True:
        try:
            if waited is not None and waited.error is not None:
                waited = steps.throw(waited.error)
            else:
                waited = steps.send(None if waited is None else waited.value)
        except StopIteration:
            break
        longest, before = max(longest, names.seen - before), names.seen
    assert names.seen >= COUNT
    return max(longest, names.seen - before)


class Sized(Names):
    """Such names as a list."""

    def __len__(self):
        return COUNT


def of_one_topic(names):
    """Requests that name very many partitions of one topic."""
    replicas = SimpleNamespace(leader_of=describe)
    image = SimpleNamespace(topics={})
    moved = SimpleNamespace(move=lambda *_: resolved(ErrorCode.LOG_DIR_NOT_FOUND))
    topic = SimpleNamespace(name="t", partition_indexes=names, partitions=names)
    return {
        "producers": (
            DescribeProducers(replicas, image, elements_max=COUNT),
            SimpleNamespace(topics=[topic]),
        ),
        "moves": (
            AlterReplicaLogDirs(moved),
            SimpleNamespace(dirs=[SimpleNamespace(path="/a", topics=[topic])]),
        ),
    }


@pytest.mark.parametrize("what", of_one_topic(None))
def test_very_many_partitions_of_a_topic_are_looked_at_in_steps(what):
    names = Names()
    handler, request = of_one_topic(names)[what]
    assert longest_look(names, handler.handle(request, None)) <= RUN + 1
    assert names.seen == COUNT


def test_filters_of_acls_that_fit_nothing_are_looked_at_in_steps():
    """A filter had steps only where it found something: 10,000 of them held the loop 0.2 s."""
    acls = SimpleNamespace(catch_up=lambda: resolved(None), delete=lambda _: resolved({}))
    authorizer = SimpleNamespace(select=lambda _: iter(()))

    class Filters(Sized):
        def __len__(self):
            return 10

        def __iter__(self):
            for _ in super().__iter__():
                yield DeleteAclsFilter(
                    resource_type_filter=1,
                    resource_name_filter=None,
                    pattern_type_filter=1,
                    principal_filter=None,
                    host_filter=None,
                    operation=1,
                    permission_type=1,
                )

    filters = Filters()
    steps = DeleteAcls(acls, authorizer).handle(SimpleNamespace(filters=filters), None)
    assert longest_look(filters, steps) <= RUN


def test_what_members_have_is_looked_at_in_steps():
    """All topics of 64 members were: each decision that is not remembered takes microseconds."""

    class Topics(Names):
        def __iter__(self):
            return (SimpleNamespace(topic_name=name) for name in super().__iter__())

    topics = Topics()
    seen = SimpleNamespace(topic_partitions=[])
    member = SimpleNamespace(
        assignment=seen, target_assignment=SimpleNamespace(topic_partitions=topics)
    )
    access = SimpleNamespace(may_group=lambda *_: True, may_topic=lambda *_, **__: True)
    group = SimpleNamespace(error_code=ErrorCode.NONE, members=[member])
    answer = SimpleNamespace(groups=[group])
    request = SimpleNamespace(group_ids=["g"], include_authorized_operations=False)
    steps = consumer_group_describe(request, None, access, lambda _: answer)
    assert longest_look(topics, steps) <= RUN
    assert answer.groups == [group]


def test_very_many_topics_with_configs_are_told_in_steps():
    """All of them were in one turn, encoded in the same."""
    topics = {f"t{number}": None for number in range(COUNT)}
    image = SimpleNamespace(brokers={}, topics=topics, configured=lambda _: ["g"])
    request = SimpleNamespace(resource_types=[])
    steps = ListConfigResources(image).handle(request, SimpleNamespace(api_version=1))
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found = end.value.config_resources
            break
        count += 1
    assert [one.resource_name for one in found] == [*sorted(topics), "g"]
    assert count > COUNT // STRIDE


class Looked:
    """A topic of a request that counts who looks at its name."""

    count = 0
    topic_id = NULL_TOPIC_ID

    def __init__(self, number):
        self._name = f"name {number:09}"

    @property
    def name(self):
        Looked.count += 1
        return self._name


def metadata_of(topics):
    rest = {"include_topic_authorized_operations": False, "allow_auto_topic_creation": True}
    rest |= {"include_cluster_authorized_operations": False}
    guard = metadata(SimpleNamespace(topic=lambda _: None), auto_create=True)
    return guard, SimpleNamespace(topics=topics, **rest)


def topic_partitions_of(topics):
    cursor = SimpleNamespace(topic_name=f"name {COUNT - 1:09}", partition_index=0)
    guard = describe_topic_partitions(SimpleNamespace(topics={}))
    return guard, SimpleNamespace(topics=topics, cursor=cursor)


@pytest.mark.parametrize("may_describe", [True, False])
@pytest.mark.parametrize("ask", [metadata_of, topic_partitions_of])
def test_guards_look_at_very_many_topics_in_steps(ask, may_describe):
    """190,000 names that a client may not see held the loop for 70 ms."""
    access = SimpleNamespace(
        may_cluster=lambda *_, **__: False,
        may_topic=lambda operation, *_, **__: may_describe and operation is Operation.DESCRIBE,
    )
    guard, request = ask([Looked(number) for number in range(COUNT)])
    Looked.count = before = longest = 0
    call = SimpleNamespace(api_version=12)
    steps = guard(request, call, access, lambda _: SimpleNamespace(topics=[]))
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found = end.value.topics
            break
        longest, before = max(longest, Looked.count - before), Looked.count
    assert max(longest, Looked.count - before) <= RUN
    assert (
        len(found)
        == {
            (metadata_of, True): COUNT,
            (metadata_of, False): COUNT,
            (topic_partitions_of, True): 0,
            (topic_partitions_of, False): 1,
        }[ask, may_describe]
    )
