"""What can have become of offsets since somebody noted them, and where reading goes on then.

Pure: it compares ``Positions`` with what the cluster says now. A topic that was deleted and made
again, data that retention took, and a log that lost its end are three different misfortunes, so
they are three errors. Source: KIP-320 (truncation shows in where a leader epoch ends), KIP-516.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.errors import OttlaError
from ottla.ids import TopicId, TopicPartition, topic_id_text
from ottla.spark.positions import Positions

HINT = "failOnDataLoss=false goes on without it"


class DataLoss(OttlaError):
    """Records that were to be read are not there. The subclass says why."""


class TopicRecreated(DataLoss):
    """The topic was deleted and made anew: the offsets are another log's."""


class DataAgedOut(DataLoss):
    """The log starts after the offset: retention, or DeleteRecords, took what was there."""


class LogRewound(DataLoss):
    """The log ends, or took another course, before the offset: it lost its end since."""


class PartitionGone(DataLoss):
    """The topic, or the partition, is not there any more."""


class LogState(NamedTuple):
    """A partition's log as a reader sees it: ``[start, end)``, and the leader epoch, or -1."""

    start: int
    end: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ClusterState:
    """What the cluster says about the partitions in question."""

    logs: Mapping[TopicPartition, LogState]
    ids: Mapping[str, TopicId]
    """The ids of the topics that have one."""
    epoch_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where the epoch of a position ended in the log as it is now, if that was asked."""


class Loss(NamedTuple):
    """One misfortune. ``resume`` is where to go on; None when there is nothing to go on with."""

    error: DataLoss
    resume: int | None


def find_losses(positions: Positions, now: ClusterState) -> dict[TopicPartition, Loss]:
    """Return what went wrong with each position; nothing for those that are as they were."""
    found = ((each, _loss(each, positions, now)) for each in positions.offsets)
    return {each: loss for each, loss in found if loss is not None}


def _loss(each: TopicPartition, positions: Positions, now: ClusterState) -> Loss | None:
    offset = positions.offsets[each]
    log = now.logs.get(each)
    if log is None:
        why = f"{each}: there is no such partition any more; it was to be read from offset {offset}"
        return Loss(PartitionGone(f"{why} ({HINT})"), None)
    known, current = positions.ids.get(each.topic), now.ids.get(each.topic)
    if known is not None and current is not None and known != current:
        why = (
            f"{each}: the topic was deleted and made anew: offset {offset} is of the topic with "
            f"the id {topic_id_text(known)}, this one is {topic_id_text(current)} and holds "
            f"[{log.start}, {log.end})"
        )
        same = "acceptTopicIds=true, for a stream, if the cluster was mirrored or restored"
        return Loss(TopicRecreated(f"{why} ({HINT}; {same})"), log.start)
    epoch_end = now.epoch_ends.get(each)
    if epoch_end is not None and epoch_end < offset:
        why = (
            f"{each}: the log took another course at offset {epoch_end}, before offset {offset} "
            f"which leader epoch {positions.epochs.get(each)} had reached: its end was lost"
        )
        return Loss(LogRewound(f"{why} ({HINT})"), max(epoch_end, log.start))
    if offset > log.end:
        why = (
            f"{each}: offset {offset} is beyond the log, which holds [{log.start}, {log.end}): "
            f"its end was lost, or it never reached so far"
        )
        return Loss(LogRewound(f"{why} ({HINT})"), log.end)
    if offset < log.start:
        why = (
            f"{each}: offsets [{offset}, {log.start}) are gone, by retention or deletion: the log "
            f"holds [{log.start}, {log.end})"
        )
        return Loss(DataAgedOut(f"{why} ({HINT})"), log.start)
    return None
