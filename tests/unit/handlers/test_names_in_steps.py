"""Handlers look at very many names in steps, also to find those that are named twice."""

from types import SimpleNamespace

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.apis.consumer_group_describe import ConsumerGroupDescribe
from ottla.handlers.apis.delete_groups import DeleteGroups
from ottla.handlers.apis.describe_groups import DescribeGroups
from ottla.handlers.apis.describe_transactions import DescribeTransactions
from ottla.handlers.apis.find_coordinator import FindCoordinator
from ottla.handlers.apis.list_transactions import ListTransactions
from ottla.pending import failed
from ottla.sliced import RUN

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
    steps = HANDLERS[field]().handle(request, SimpleNamespace(api_version=5))
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
    assert names.seen == COUNT
    assert max(longest, names.seen - before) <= RUN + 1
