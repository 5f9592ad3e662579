"""Commits of changed partitions, guarded by what each change was judged by.

Whoever changes partitions in the store (leaders, the controller, administration) judges by the
image: which state a partition has, and which nodes are registered. The commit holds only if that
still is so, and a commit that is tried again, in parts, is guarded by the same: a registration that
is newer than the judgement calls for another one. Knows no store and no image. Source: cluster
design 3.3.
"""

from collections.abc import Sequence
from typing import Protocol

from ottla.metadata.keys import Keys
from ottla.metadata.store import ABSENT, Guard, Put
from ottla.metadata.values import NO_LEADER, PartitionState, encode_partition


class Judged(Protocol):
    """One changed partition."""

    @property
    def key(self) -> Guard:
        """The partition's key, in the revision that was read."""

    @property
    def nodes(self) -> Sequence[Guard]:
        """The registrations that the change depends on, as they were."""

    @property
    def state(self) -> PartitionState:
        """What is to be committed."""


def leaders_registration(keys: Keys, state: PartitionState, epoch: int | None) -> tuple[Guard, ...]:
    """Return the guard of the registration of the leader in ``state``; none if nobody leads.

    ``epoch``: the registration that the change was judged by; None: the leader had none.
    """
    if state.leader == NO_LEADER:
        return ()
    return (Guard(keys.live_broker(state.leader), create_rev=ABSENT if epoch is None else epoch),)


def commit_of(changes: Sequence[Judged], *further: Guard) -> tuple[list[Guard], list[Put]]:
    """Return guards and operations of one commit of all ``changes``; ``further`` guards it, too.

    The keys come first: when a registration is found to be gone, they have held.
    """
    guards = {change.key: None for change in changes}
    guards.update(dict.fromkeys(further))
    guards.update(dict.fromkeys(node for change in changes for node in change.nodes))
    return list(guards), [Put(each.key.key, encode_partition(each.state)) for each in changes]
