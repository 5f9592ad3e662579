"""Who looks at groups as an administrator does.

Judged: a member that a group lists was heard of not long ago, and has its name for itself.
"""

from ottla.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tests.simulation.clients.base import Client

SILENT_SECONDS = 70.0
"""How long a member may have been silent, and be one still: its session (45 s by default, for
members of KIP-848 groups), the time it has for a rebalance, and some more."""


class Auditor(Client):
    """Describes groups."""

    kind = "auditor"

    def __init__(self, world, number):
        super().__init__(world, number)
        self._since = {}
        """When members that nobody knows were listed first: their answer may have been lost."""

    async def step(self):
        groups = list(self.world.members)
        if not groups:
            return
        group = self.random.choice(groups)
        if group.startswith("classic"):
            request = DescribeGroupsRequest(groups=[group])
            told = (await self.call(request, DescribeGroupsResponse)).groups[0]
            members = [(one.member_id, one.group_instance_id) for one in told.members]
        else:
            request = ConsumerGroupDescribeRequest(
                group_ids=[group], include_authorized_operations=False
            )
            told = (await self.call(request, ConsumerGroupDescribeResponse)).groups[0]
            members = [(one.member_id, one.instance_id) for one in told.members]
        self.world.coverage.answered("describing a group", told.error_code)
        if told.error_code == 0:
            self._judge(group, members)

    def _judge(self, group, members):
        named = [name for _, name in members if name]
        twice = {name for name in named if named.count(name) > 1}
        if twice:
            self.world.problem(f"{group}: {sorted(twice)} are members more than once")
        now = self.world.loop.now
        for member_id, name in members:
            shown = self.world.shown.get((group, name or member_id))
            if shown is None:
                shown = self._since.setdefault((group, member_id), now)
            since = max(shown, self.world.unhindered_since)
            if self.world.is_unhindered and now - since > SILENT_SECONDS:
                text = f"nobody has heard of it since {shown:.1f} s"
                self.world.problem(f"{group}: {member_id} is a member, and {text}")
