"""A log for a partition that has none here: it answers every request with its failure.

Made by log.manager when a directory cannot be opened or made, so that the partition is known and
led nowhere. Touches no file.
"""

from ottla.env.clock import Clock
from ottla.env.disk import Disk
from ottla.ids import TopicId, TopicPartition
from ottla.log.config import LogConfig
from ottla.log.contents.leader_epochs import LeaderEpochs
from ottla.log.contents.segments import Segments
from ottla.log.health import LogState
from ottla.log.log import Log
from ottla.log.producers.producers import Producers
from ottla.log.segment.segment import Segment


def failed_log(  # noqa: PLR0917 - each of another type
    disk: Disk,
    clock: Clock,
    directory: str,
    topic_partition: TopicPartition,
    topic_id: TopicId,
    config: LogConfig,
) -> Log:
    """Return an empty log that has failed, as if it lay in ``directory``."""
    empty = Segment(
        disk,
        directory,
        0,
        size_bytes=0,
        index_interval_bytes=config.index_interval_bytes,
        created_ms=clock.wall_ms(),
    )
    log = Log(
        disk=disk,
        clock=clock,
        directory=directory,
        topic_partition=topic_partition,
        topic_id=topic_id,
        config=config,
        segments=Segments(disk, directory, [empty]),
        leader_epochs=LeaderEpochs(),
        log_start_offset=0,
        log_end_offset=0,
        producers=Producers(disk, clock, directory, [], config.producer_id_expiration_ms),
    )
    log.state = LogState.FAILED
    return log
