"""Identities are not mixed up: an offset is no epoch, and no bare number is either."""

from typing import assert_type

from ottla.ids import (
    LeaderEpoch,
    Offset,
    ProducerId,
    TopicId,
    TopicPartition,
    parse_topic_id,
    topic_id_text,
)


def read_from(offset: Offset) -> None:
    """Stand for whatever takes an offset."""


def an_epoch_is_no_offset(epoch: LeaderEpoch, producer_id: ProducerId) -> None:
    read_from(Offset(7))
    read_from(epoch)  # type: ignore[arg-type]
    read_from(producer_id)  # type: ignore[arg-type]
    read_from(7)  # type: ignore[arg-type]


def arithmetic_leaves_the_identity(offset: Offset) -> None:
    assert_type(offset + 1, int)
    read_from(offset + 1)  # type: ignore[arg-type]
    read_from(Offset(offset + 1))


def bytes_are_no_topic_id(text: str, raw: bytes) -> None:
    assert_type(parse_topic_id(text), TopicId)
    assert_type(topic_id_text(TopicId(raw)), str)
    topic_id_text(raw)  # type: ignore[arg-type]


def a_partition_is_a_pair(each: TopicPartition) -> None:
    topic, partition = each
    assert_type(topic, str)
    assert_type(partition, int)
    each.partition = 3  # type: ignore[misc]
