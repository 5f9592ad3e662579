"""``ottla cat -L`` and ``-Q``: metadata and offsets, as kcat prints them.

The order of topics and partitions is that of the broker's answer.
"""

import sys
from argparse import Namespace
from typing import NamedTuple

from ottla.cli.cat_format import json_string
from ottla.cli.failure import Exit, Failure
from ottla.cli.run import run
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.connection import Connection
from ottla.client.wire.errors import error_code
from ottla.client.wire.offsets import FoundOffset
from ottla.client.wire.view import metadata_request
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic

_TEXTS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "Unknown topic or partition",
    ErrorCode.LEADER_NOT_AVAILABLE: "Leader not available",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "Invalid topic",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed",
    ErrorCode.REPLICA_NOT_AVAILABLE: "Replica not available",
}
"""librdkafka's words, behind "Broker: "."""


class _Query(NamedTuple):
    """One -t of -Q."""

    partition: TopicPartition
    timestamp: int


def error_text(code: int) -> str:
    """Return what kcat says of a broker's error."""
    error = error_code(code)
    return f"Broker: {_TEXTS.get(error, error.text)}"


def list_metadata(options: Namespace) -> None:
    """Print brokers, topics and partitions."""
    topic = options.list_t[-1] if options.list_t else None

    async def command(cluster: Cluster) -> None:
        async def attempt() -> tuple[MetadataResponse, Connection]:
            connection = await cluster.any()
            # As kcat: to list a topic makes it, where the broker makes topics.
            request = metadata_request(None if topic is None else [topic], create=True)
            return await connection.call(request, MetadataResponse), connection

        answer, connection = await cluster.retrying(attempt)
        address = f"{connection.address.host}:{connection.address.port}"
        named = {f"{each.host}:{each.port}": each.node_id for each in answer.brokers}
        origin = named.get(address, -1)
        name = f"{address}/{origin if origin >= 0 else 'bootstrap'}"
        show = _metadata_json if options.flag_J else _metadata_text
        sys.stdout.buffer.write(show(answer, topic, origin, name))

    run(options, command)


def _metadata_text(answer: MetadataResponse, topic: str | None, origin: int, name: str) -> bytes:
    lines = [
        f"Metadata for {topic or 'all topics'} (from broker {origin}: {name}):",
        f" {len(answer.brokers)} brokers:",
    ]
    for broker in sorted(answer.brokers, key=lambda each: each.node_id):
        mark = " (controller)" if broker.node_id == answer.controller_id else ""
        lines.append(f"  broker {broker.node_id} at {broker.host}:{broker.port}{mark}")
    lines.append(f" {len(answer.topics)} topics:")
    for each in answer.topics:
        error = f" {error_text(each.error_code)}" if each.error_code else ""
        if each.error_code == ErrorCode.LEADER_NOT_AVAILABLE:
            error += " (try again)"
        lines.append(f'  topic "{each.name}" with {len(each.partitions)} partitions:{error}')
        for one in each.partitions:
            replicas = ",".join(map(str, one.replica_nodes))
            isr = ",".join(map(str, one.isr_nodes))
            error = f", {error_text(one.error_code)}" if one.error_code else ""
            head = f"    partition {one.partition_index}, leader {one.leader_id}"
            lines.append(f"{head}, replicas: {replicas}, isrs: {isr}{error}")
    return "".join(f"{line}\n" for line in lines).encode()


def _metadata_json(answer: MetadataResponse, topic: str | None, origin: int, name: str) -> bytes:
    brokers = b",".join(
        b'{"id":%d,"name":%b}' % (each.node_id, _string(f"{each.host}:{each.port}"))
        for each in sorted(answer.brokers, key=lambda each: each.node_id)
    )
    return (
        b'{"originating_broker":{"id":%d,"name":%b},"query":{"topic":%b},"controllerid":%d,'
        b'"brokers":[%b],"topics":[%b]}'
        % (
            origin,
            _string(name),
            _string(topic or "*"),
            answer.controller_id,
            brokers,
            b",".join(map(_topic_json, answer.topics)),
        )
    )


def _topic_json(topic: MetadataResponseTopic) -> bytes:
    partitions = b",".join(
        b'{"partition":%d%b,"leader":%d,"replicas":[%b],"isrs":[%b]}'
        % (
            each.partition_index,
            _error_json(each.error_code),
            each.leader_id,
            _ids(each.replica_nodes),
            _ids(each.isr_nodes),
        )
        for each in topic.partitions
    )
    error = _error_json(topic.error_code)
    return b'{"topic":%b%b,"partitions":[%b]}' % (_string(topic.name or ""), error, partitions)


def _ids(numbers: "list[int]") -> bytes:
    return b",".join(b'{"id":%d}' % each for each in numbers)


def _error_json(code: int) -> bytes:
    return b',"error":%b' % _string(error_text(code)) if code else b""


def _string(text: str) -> bytes:
    return json_string(text.encode())


def query(options: Namespace) -> None:
    """Print the offset of a time in each partition asked for. Fails, as kcat, if none has one."""
    queries = [_parse_query(each) for each in options.list_t]
    if not queries:
        what = "-Q needs -t TOPIC:PARTITION:TIMESTAMP"
        raise Failure(what, fix="ottla cat --help", code=Exit.USAGE)
    asked = {each.partition: each.timestamp for each in queries}
    if len(asked) < len(queries):
        raise Failure("-Q: a partition is named twice", code=Exit.USAGE)

    async def command(cluster: Cluster) -> None:
        found: list[tuple[TopicPartition, int, str]] = []
        errors: list[KafkaError] = []
        for partition, timestamp in asked.items():
            offset = await _offset(cluster, partition, timestamp)
            if isinstance(offset, KafkaError):
                errors.append(offset)
                found.append((partition, timestamp, error_text(offset.code)))
            else:
                found.append((partition, offset.offset, ""))
        if len(errors) == len(asked):
            raise errors[0]
        show = _offsets_json if options.flag_J else _offsets_text
        sys.stdout.buffer.write(show(found))

    run(options, command)


async def _offset(
    cluster: Cluster, partition: TopicPartition, timestamp: int
) -> FoundOffset | KafkaError:
    try:
        view = await cluster.ensure([partition.topic])
        view.partition(*partition)
    except KafkaError as error:  # Waiting would not make it.
        return error
    return (await cluster.list_offsets({partition: timestamp}))[partition]


def _offsets_text(found: list[tuple[TopicPartition, int, str]]) -> bytes:
    return b"".join(
        f"{topic} [{index}] offset {offset}{f': {error}' if error else ''}\n".encode()
        for (topic, index), offset, error in found
    )


def _offsets_json(found: list[tuple[TopicPartition, int, str]]) -> bytes:
    """Return an object of topics. As in kcat, a topic that comes back later is there twice."""
    parts: list[bytes] = []
    last = ""
    for (topic, index), offset, error in found:
        if topic != last:
            name = _string(topic)
            parts.append(b'%b%b:{"topic":%b' % (b"}," if last else b"", name, name))
            last = topic
        told = b',"error":%b' % _string(error) if error else b""
        parts.append(b',"%d":{"partition":%d,"offset":%d%b}' % (index, index, offset, told))
    return b"{%b%b}" % (b"".join(parts), b"}" if last else b"")


def _parse_query(text: str) -> _Query:
    """Return the partition and time of ``TOPIC:PARTITION:TIMESTAMP``. Raises Failure."""
    try:
        topic, partition, timestamp = text.split(":", 2)
        return _Query(TopicPartition(topic, int(partition)), int(timestamp))
    except ValueError as error:
        what = f"-t {text!r} is not TOPIC:PARTITION:TIMESTAMP"
        raise Failure(what, code=Exit.USAGE) from error
