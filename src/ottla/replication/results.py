"""A log's results under a partition's name, for rooms that know partitions but no logs."""

from ottla.log.producers.states import ProducerStates
from ottla.log.results import AppendResult, TimestampedOffset

__all__ = ["AppendResult", "ProducerStates", "TimestampedOffset"]
