"""Decides which copy of a partition is served when nobody remembers who led it. Pure.

The best copy has the highest leader epoch, and of that epoch the most records: whatever was
committed is in it, as long as it is on a node that was in the ISR. Of two with the same records the
one from which more were deleted is the newer. A copy whose records were all deleted in another one
is older than that, which may have no records, and know no epoch. All nodes with a copy are replicas
again, and those with one that is as good are in sync; those behind the leader follow it, and cut
off what it does not have. The leader epoch is above those of all copies, so that no two histories
share one.

Source: KIP-966, unclean recovery (last leader epoch and log end offset); KIP-101.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ottla.ids import LeaderEpoch, NodeId, TopicId
from ottla.metadata.values import PartitionState

if TYPE_CHECKING:
    from ottla.log.log import Log


_Place = TypeVar("_Place")


class Copy(NamedTuple):
    """What one node has of a partition."""

    topic_id: TopicId | None
    """None: its directory does not say."""
    latest_epoch: int
    """The last leader epoch in the log; -1: none."""
    log_end_offset: int
    directory: str
    log_start_offset: int = 0

    @property
    def rank(self) -> tuple[int, int, int]:
        """How new it is: latest leader epoch, end and start of the log; see ``newest``."""
        return self.latest_epoch, self.log_end_offset, self.log_start_offset


def copy_of(log: "Log") -> Copy:
    """Return what a node has in this log."""
    return Copy(
        log.topic_id,
        log.latest_epoch,
        log.log_end_offset,
        log.directory,
        log.log_start_offset,
    )


def newest(copies: Mapping[_Place, Copy]) -> list[_Place]:
    """Return the places of those copies than which none is newer; of one copy or more."""
    start = max(copy.log_start_offset for copy in copies.values())
    ranks = {
        place: copy.rank
        for place, copy in copies.items()
        if copy.log_start_offset == start or copy.log_end_offset > start
    }
    best = max(ranks.values())
    return [place for place, rank in ranks.items() if rank == best]


Copies = Mapping[NodeId, Copy]
"""All that is found of one partition, by node."""
OwnCopies = Mapping[str, Mapping[int, Copy]]
"""What one node has, by topic and partition."""


class Held(NamedTuple):
    """What one node has that the metadata does not know, or that it may be wrong about."""

    copies: OwnCopies
    unreadable: tuple[str, ...] = ()
    """What may hold more copies and cannot be read, for people: path and reason."""
    may_lack: bool = False
    """Whether a log directory of it is an old copy, new or away: it may lack records, or
    partitions, that it counts as in sync for."""


EPOCHS_LEFT_OUT = 1_000
"""Leader epochs that are given to nobody: a copy that nobody knew of may have had them."""


def decide(index: int, copies: Copies, *, may_be_more: bool = False) -> PartitionState:
    """Return the state of partition ``index`` that makes the best of one copy or more.

    Of copies that are as good as each other the partitions take turns, so that leaders are spread.
    The order of ``copies`` does not count. ``may_be_more``: a disk that was given up may come back;
    its records shall not pass for those of the same epoch here.
    """
    leaders = sorted(newest(copies))
    leader, nodes = leaders[index % len(leaders)], sorted(copies)
    first = nodes.index(leader)
    replicas = (*nodes[first:], *nodes[:first])
    in_sync = tuple(node for node in replicas if node in leaders)
    epoch = LeaderEpoch(epoch_above(copies) + EPOCHS_LEFT_OUT * may_be_more)
    return PartitionState(replicas, in_sync, leader, epoch, 0)


def epoch_above(copies: Copies) -> LeaderEpoch:
    """Return a leader epoch that no copy has seen."""
    return LeaderEpoch(max(copy.latest_epoch for copy in copies.values()) + 1)


def by_partition(own: Mapping[NodeId, OwnCopies]) -> dict[str, dict[int, dict[NodeId, Copy]]]:
    """Return what nodes have by topic, partition and node; those with most directories first.

    A directory that somebody copied to another name comes after the topic that it is of.
    """
    found: dict[str, dict[int, dict[NodeId, Copy]]] = {}
    for node in sorted(own):
        for name, partitions in own[node].items():
            for index, copy in partitions.items():
                found.setdefault(name, {}).setdefault(index, {})[node] = copy
    counts = {name: sum(map(len, partitions.values())) for name, partitions in found.items()}
    return {name: found[name] for name in sorted(found, key=lambda name: (-counts[name], name))}


def choose_topic_id(partitions: Iterable[Copies]) -> TopicId | None:
    """Return whose directories a topic is made of, when nodes have several topics of one name.

    It is the topic with the most copies, then the most records: a node that was away while a topic
    was deleted and made anew has the old one alone. None: no directory says whose it is.
    """
    counts, records = Counter[TopicId](), Counter[TopicId]()
    for copies in partitions:
        for copy in copies.values():
            if copy.topic_id is not None:
                counts[copy.topic_id] += 1
                records[copy.topic_id] += copy.log_end_offset
    return max(counts, key=lambda one: (counts[one], records[one], one), default=None)
