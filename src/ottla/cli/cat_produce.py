"""``ottla cat -P``: records from what stands between delimiters, or from whole files.

Owns which bytes become key and value, and which partition takes them: as kcat's own client would,
so that both may write to a topic.
"""

import asyncio
import os
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from ottla.cli.cat_options import delimiter, partition_of, say
from ottla.cli.failure import Exit, Failure
from ottla.cli.input_stream import cannot_read, input_stream, parts_of
from ottla.cli.run import run
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.producer import Delivery, Producer, ProducerSettings
from ottla.client.wire.errors import ConnectionFailed
from ottla.client.wire.partitioner import partition_of_key
from ottla.config.human import size_text
from ottla.errors import KafkaError
from ottla.records.compression import Codec

MESSAGE_MAX_BYTES = 1_000_000_000
"""librdkafka's limit of message.max.bytes."""

Choose = Callable[[bytes | None, int], int | None]
"""Returns a partition for a key, of so many; None: any."""


class Cut(NamedTuple):
    """How a piece of input becomes a record."""

    key_delimiter: bytes | None
    fixed_key: bytes | None
    is_null: bool
    """Whether empty is null, where there is a key delimiter."""


def key_and_value(data: bytes, cut: Cut) -> tuple[bytes | None, bytes | None]:
    """Return key and value of a piece of input."""
    key: bytes | None = None
    value: bytes | None = data
    if cut.key_delimiter:
        found, is_there, rest = data.partition(cut.key_delimiter)
        if is_there:
            key, value = found, rest
            if cut.is_null:
                key, value = key or None, value or None
    return (cut.fixed_key if key is None else key), value


def by_crc32(key: bytes | None, partition_count: int) -> int | None:
    """Return the partition that librdkafka chooses unless told otherwise; None: any."""
    return crc32(key) % partition_count if key else None


def _by_murmur2(key: bytes | None, partition_count: int) -> int | None:
    return None if key is None else partition_of_key(key, partition_count)


PARTITIONERS: dict[str, Choose] = {
    "consistent_random": by_crc32,
    "consistent": lambda key, count: crc32(key or b"") % count,
    "murmur2": lambda key, count: partition_of_key(key or b"", count),
    "murmur2_random": _by_murmur2,
    "random": lambda *_: None,
}


def produce(options: Namespace) -> None:
    """Send records."""
    told = options.of_records
    settings = ProducerSettings(
        acks=_acks(told.get("acks", "all")),
        codec=_codec(options.value_z or told.get("codec", "none")),
    )
    name = told.get("partitioner", "consistent_random")
    if name not in PARTITIONERS:
        what = f"-X partitioner={name} is not one of {', '.join(PARTITIONERS)}"
        raise Failure(what, code=Exit.USAGE)
    between = delimiter("-D", "\\n" if options.value_D is None else options.value_D)
    if not between:
        raise Failure("-D must not be empty when producing", code=Exit.USAGE)
    cut = Cut(
        None if options.value_K is None else delimiter("-K", options.value_K),
        None if options.value_k is None else os.fsencode(options.value_k),
        options.flag_Z,
    )
    headers = _headers(options.list_H)
    if options.flag_l and len(options.files) > 1:
        raise Failure("-l takes one file", code=Exit.USAGE)
    topic, partition, choose = options.list_t[-1], partition_of(options), PARTITIONERS[name]

    async def command(cluster: Cluster) -> None:
        view = await cluster.ensure([topic], create=True, led=False)
        count = len(view.topic(topic).partitions)
        failures = _Failures()
        async with Producer(cluster, settings) as producer:
            async for key, value in _records(options, between, cut):
                where = choose(key, count) if partition is None else partition
                promise = await producer.send(
                    topic, value, key=key, headers=headers, partition=where
                )
                promise.add_done_callback(failures.look)
                if failures.first is not None:
                    break
            await producer.flush()
        if failures.first is not None:
            raise failures.first

    run(options, command)


class _Failures:
    """Keeps the first error of a delivery."""

    def __init__(self) -> None:
        self.first: KafkaError | ConnectionFailed | None = None

    def look(self, promise: "asyncio.Future[Delivery]") -> None:
        error = promise.exception()
        if self.first is None and isinstance(error, KafkaError | ConnectionFailed):
            self.first = error


async def _records(
    options: Namespace, between: bytes, cut: Cut
) -> AsyncIterator[tuple[bytes | None, bytes | None]]:
    """Yield keys and values, at most -c. Raises Failure."""
    sent = 0
    if options.files and not options.flag_l:
        async for data in _files(options):
            yield cut.fixed_key, data
        return
    with input_stream(options.files[0] if options.files else None) as number:
        async for data in parts_of(number, between, MESSAGE_MAX_BYTES):
            if not data:
                continue
            yield key_and_value(data, cut)
            if options.flag_T:
                sys.stdout.buffer.write(data)
            sent += 1
            if sent == options.count:
                return


async def _files(options: Namespace) -> AsyncIterator[bytes]:
    """Yield the contents of the files that can be read and are not empty. Raises Failure."""
    read_count = 0
    failure: OSError | None = None
    for name in options.files:
        try:
            size_bytes = await asyncio.to_thread(lambda path: path.stat().st_size, Path(name))
            if size_bytes > MESSAGE_MAX_BYTES:
                raise Failure(f"{name} of {size_text(size_bytes)} is too large for a record")
            data = await asyncio.to_thread(Path(name).read_bytes)
        except OSError as error:
            failure = error
            say(options, f"Failed to open {name}: {error.strerror}")
            continue
        read_count += 1
        if data:
            yield data
    if failure is not None:
        if not read_count:
            raise cannot_read(failure, "the files")
        said = f"{len(options.files) - read_count}/{len(options.files)}"
        say(options, f"Failed to produce from {said} files")


def _headers(texts: list[str]) -> tuple[tuple[str, bytes | None], ...]:
    """Return the headers. Raises Failure."""
    headers: list[tuple[str, bytes | None]] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not name:
            raise Failure(f"-H {text!r} is not NAME=VALUE or NAME", code=Exit.USAGE)
        headers.append((name, os.fsencode(value) if equals else None))
    return tuple(headers)


def _acks(text: str) -> int:
    known = {"all": -1, "-1": -1, "0": 0, "1": 1}
    if text not in known:
        raise Failure(f"-X acks={text} is not all, 1 or 0", code=Exit.USAGE)
    return known[text]


def _codec(text: str) -> Codec:
    known = {each.name.lower(): each for each in Codec}
    if text not in known:
        raise Failure(f"-z {text} is not one of {', '.join(known)}", code=Exit.USAGE)
    return known[text]
