"""What a partition answers, for those who ask partitions and know no logs: its log's results."""

from ottla.log.producers.states import ProducerStates
from ottla.log.results import AppendResult, TimestampedOffset

__all__ = ["AppendResult", "ProducerStates", "TimestampedOffset"]
