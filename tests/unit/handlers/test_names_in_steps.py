"""Of very many names no handler looks at all in one turn, not even to find those named twice."""

from types import SimpleNamespace

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.apis.consumer_group_describe import ConsumerGroupDescribe
from ottla.handlers.apis.delete_groups import DeleteGroups
from ottla.handlers.apis.describe_groups import DescribeGroups
from ottla.handlers.apis.describe_transactions import DescribeTransactions
from ottla.handlers.apis.find_coordinator import FindCoordinator
from ottla.handlers.apis.list_transactions import ListTransactions
from ottla.pending import Pending
from ottla.sliced import RUN

COUNT = 10 * RUN
UNKNOWN = KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)


class Names:
    """Tells how many were looked at."""

    def __init__(self):
        self.seen = 0

    def __iter__(self):
        for number in range(COUNT):
            self.seen += 1
            yield f"name {number % 7}"


def unknown(*_):
    pending = Pending()
    pending.resolve(UNKNOWN)
    return pending


GROUPS = SimpleNamespace(
    delete_group=unknown, describe_group=unknown, describe_consumer_group=unknown
)
TRANSACTIONS = SimpleNamespace(describe=lambda _: UNKNOWN, list_all=list)
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
    value = None
    while True:
        try:
            waited = steps.send(value)
        except StopIteration:
            break
        value = waited.value if waited is not None else None
        longest, before = max(longest, names.seen - before), names.seen
    assert names.seen == COUNT
    assert max(longest, names.seen - before) <= RUN + 1
