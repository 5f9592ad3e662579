"""What ``ottla bench`` measures.

Batches are made beforehand and never opened, so that what is measured is mostly the cluster.
Owns the topic of a measurement, which is deleted however that ends. Latencies are from the request
to its answer; a request is never sent later because another is slow, but for ``--in-flight``.
"""

import asyncio
from argparse import Namespace
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple

from ottla.cli import output as out
from ottla.cli.failure import Exit, Failure
from ottla.cli.output import Row, note, progress, write_rows
from ottla.cli.profile_files import settings_file
from ottla.cli.run import client_settings, run
from ottla.cli.waiting import Waiting
from ottla.client.asyncio.admin import Admin
from ottla.client.asyncio.cluster import Cluster
from ottla.client.asyncio.fetcher import FetchedBatches, Fetcher
from ottla.client.wire.fetching import FetchLimits
from ottla.client.wire.offsets import LATEST
from ottla.client.wire.sending import produce_request, produce_version_limit, read_produce
from ottla.env.clock import Clock, SystemClock
from ottla.env.rng import SystemRng
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.ids import TopicPartition
from ottla.protocol.messages.produce import ProduceResponse
from ottla.records.builder import build_batch_of_rows
from ottla.records.compression import Codec

COLUMNS = ("cluster", "records", "mb_per_s", "records_per_s", "p50_ms", "p99_ms", "max_ms")
LATENCY_COLUMNS = ("cluster", "records", "ack_p50_ms", "ack_p99_ms", "read_p50_ms", "read_p99_ms")
RECORD_OVERHEAD_BYTES = 10
LATENCIES_MAX = 1_000_000
PROGRESS_SECONDS = 0.5
PATIENCE_SECONDS = 30
"""How long a record that was acknowledged may take to be read."""

Measure = Callable[[Cluster, str, Namespace], Awaitable[dict[str, out.Value]]]


class Prepared(NamedTuple):
    """A batch to be written again and again."""

    data: bytes
    record_count: int
    value_bytes: int


def produce(options: Namespace) -> None:
    """Measure how fast records are written."""
    _run(options, _measure_produce, COLUMNS, "mb_per_s")


def consume(options: Namespace) -> None:
    """Measure how fast records are read."""
    _run(options, _measure_consume, (*COLUMNS[:4],), "mb_per_s")


def latency(options: Namespace) -> None:
    """Measure how long a record takes."""
    _run(options, _measure_latency, LATENCY_COLUMNS, "ack_p50_ms")


def _run(options: Namespace, measure: Measure, columns: tuple[str, ...], compared: str) -> None:
    async def command(cluster: Cluster) -> None:
        rows: list[dict[str, out.Value]] = [await _one(cluster, options, measure)]
        if options.against is not None:
            settings = client_settings(
                options.against,
                options.settings,
                settings_file(options),
                options.timeout,
            )
            async with Cluster(settings, trouble=Waiting(SystemClock())) as other:
                rows.append(await _one(other, options, measure))
            _compare(rows, compared)
        progress("")
        shown: list[Row] = list(rows)
        write_rows(shown, columns, out.chosen(options.output), header=not options.no_header)

    run(options, command)


def _compare(rows: list[dict[str, out.Value]], name: str) -> None:
    first, second = (row[name] for row in rows)
    if isinstance(first, int | float) and isinstance(second, int | float) and second:
        note(f"{name}: {first / second:.2f} times that of {rows[1]['cluster']}")


async def _one(cluster: Cluster, options: Namespace, measure: Measure) -> dict[str, out.Value]:
    address = cluster.settings.bootstrap[0]
    async with _own_topic(cluster, options) as topic:
        found = await measure(cluster, topic, options)
    return {"cluster": f"{address.host}:{address.port}", **found}


@asynccontextmanager
async def _own_topic(cluster: Cluster, options: Namespace) -> AsyncIterator[str]:
    """Give a new topic that has leaders; delete it in the end."""
    name = f"ottla-bench-{SystemRng().random_bytes(4).hex()}"
    configs: dict[str, str] = {}
    for each in options.config:
        key, equals, value = each.partition("=")
        if not equals:
            raise Failure(f"-c {each!r} is not of the form key=value", code=Exit.USAGE)
        configs[key] = value
    admin = Admin(cluster)
    await admin.create_topic(
        name,
        partition_count=options.partitions,
        replication_factor=options.replicas,
        configs=configs,
    )
    try:
        await cluster.ensure([name], create=True)  # It is made; a broker may not know it yet.
        yield name
    finally:
        try:
            await admin.delete_topics([name])
        except OttlaError as error:
            note(f"note: {name} could not be deleted: {error}")


def _prepared(options: Namespace, batch_bytes: int) -> Prepared:
    """Return a batch of records with values that compress to about the half."""
    count = max(1, batch_bytes // (options.size + RECORD_OVERHEAD_BYTES))
    noise = SystemRng().random_bytes(options.size // 2 + 1)
    value = (noise.hex() if options.size > 1 else "x").encode()[: options.size]
    now = SystemClock().wall_ms()
    codec = Codec[getattr(options, "codec", "none").upper()]
    data = build_batch_of_rows([(now, None, value, ())] * count, codec=codec)
    return Prepared(bytes(data), count, count * options.size)


# -- writing ---------------------------------------------------------------------------------------


async def _measure_produce(
    cluster: Cluster, topic: str, options: Namespace
) -> dict[str, out.Value]:
    prepared = _prepared(options, options.batch)
    targets = await _warmed_up(cluster, topic, prepared)
    clock = SystemClock()
    start = clock.monotonic()
    end = start + options.duration
    waits: deque[float] = deque(maxlen=LATENCIES_MAX)
    shown = start

    async def write_to(target: TopicPartition) -> None:
        nonlocal shown
        while clock.monotonic() < end:
            waits.append(await _send(cluster, {target: prepared.data}, options.acks))
            now = clock.monotonic()
            if now - shown > PROGRESS_SECONDS:
                shown = now
                progress(f"{len(waits) * prepared.value_bytes / (now - start) / 1e6:,.1f} MB/s")

    writers = [
        asyncio.create_task(write_to(targets[number % len(targets)]))
        for number in range(max(options.in_flight, len(targets)))
    ]
    try:
        await asyncio.gather(*writers)
    finally:
        for each in writers:
            each.cancel()
        await asyncio.gather(*writers, return_exceptions=True)
    seconds = clock.monotonic() - start
    count = len(waits)
    return {
        "records": count * prepared.record_count,
        "seconds": round(seconds, 6),
        "mb_per_s": round(count * prepared.value_bytes / seconds / 1e6, 2),
        "records_per_s": round(count * prepared.record_count / seconds),
        **_quantiles("", waits),
    }


async def _warmed_up(cluster: Cluster, topic: str, prepared: Prepared) -> list[TopicPartition]:
    """Write once to each partition, trying until its new leader knows it; return them."""
    targets = [TopicPartition(topic, each) for each in sorted(cluster.view.topic(topic).partitions)]
    for target in targets:
        await cluster.retrying(partial(_send_once_led, cluster, target, prepared.data))
    return targets


async def _send_once_led(cluster: Cluster, target: TopicPartition, data: bytes) -> None:
    await cluster.ensure([target.topic], create=True)  # Between tries the view is dropped.
    await _send(cluster, {target: data}, "all")


async def _ends(cluster: Cluster, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    found = await cluster.list_offsets(dict.fromkeys(partitions, LATEST))
    return {each: one.offset for each, one in found.items()}


async def _send(cluster: Cluster, batches: Mapping[TopicPartition, bytes], acks: str) -> float:
    """Write one batch each; return the seconds until the answer. Raises KafkaError."""
    view = cluster.view
    (leader,) = view.by_leader(batches)
    connection = await cluster.connection(leader)
    clock = SystemClock()
    timeout_ms = cluster.settings.request_timeout_ms
    request = produce_request(view, batches, -1 if acks == "all" else 1, timeout_ms)
    begin = clock.monotonic()
    answer = await connection.call(
        request, ProduceResponse, highest=produce_version_limit(view, batches)
    )
    seconds = clock.monotonic() - begin
    for partition, appended in read_produce(view, answer).items():
        if appended.error is not ErrorCode.NONE:
            why = appended.message or appended.error.text
            raise KafkaError(appended.error, f"{partition}: {why}")
    return seconds


# -- reading ---------------------------------------------------------------------------------------


async def _measure_consume(
    cluster: Cluster, topic: str, options: Namespace
) -> dict[str, out.Value]:
    await _measure_produce(cluster, topic, options)
    partitions = [TopicPartition(topic, each) for each in cluster.view.topic(topic).partitions]
    left = await _ends(cluster, partitions)
    records = sum(left.values())
    clock = SystemClock()
    start = clock.monotonic()
    async with Fetcher(cluster, FetchLimits()) as fetcher:
        await fetcher.assign(dict.fromkeys(left, 0))
        async for batches in fetcher.batches():
            if batches.next_offset >= left.get(batches.partition, 0):
                left.pop(batches.partition, None)
                await fetcher.stop_partition(batches.partition)
            if not left:
                break
    seconds = max(clock.monotonic() - start, 1e-6)
    return {
        "records": records,
        "seconds": round(seconds, 6),
        "mb_per_s": round(records * options.size / seconds / 1e6, 2),
        "records_per_s": round(records / seconds),
    }


async def _measure_latency(
    cluster: Cluster, topic: str, options: Namespace
) -> dict[str, out.Value]:
    prepared = _prepared(options, 1)
    clock = SystemClock()
    acknowledged: deque[float] = deque(maxlen=LATENCIES_MAX)
    read: deque[float] = deque(maxlen=LATENCIES_MAX)
    targets = await _warmed_up(cluster, topic, prepared)
    async with Fetcher(cluster, FetchLimits()) as fetcher:
        await fetcher.assign(await _ends(cluster, targets))
        batches = fetcher.batches()
        end = clock.monotonic() + options.duration
        while clock.monotonic() < end:
            target = targets[len(read) % len(targets)]
            begin = clock.monotonic()
            reading = asyncio.create_task(_time_of_next(batches, clock))
            try:
                acknowledged.append(await _send(cluster, {target: prepared.data}, options.acks))
                async with asyncio.timeout(PATIENCE_SECONDS):
                    read.append(await reading - begin)
            except TimeoutError as error:
                why = f"nothing came within {PATIENCE_SECONDS} s"
                raise Failure(f"a record of {target} was not read", why=why) from error
            finally:
                reading.cancel()
    return {
        "records": len(read),
        **_quantiles("ack_", acknowledged),
        **_quantiles("read_", read),
    }


async def _time_of_next(batches: AsyncIterator[FetchedBatches], clock: Clock) -> float:
    await anext(batches)
    return clock.monotonic()


def _quantiles(prefix: str, seconds: deque[float]) -> dict[str, out.Value]:
    ordered = sorted(seconds)
    if not ordered:
        return dict.fromkeys((f"{prefix}p50_ms", f"{prefix}p99_ms", f"{prefix}max_ms"))
    last = len(ordered) - 1
    marks = {"p50_ms": last // 2, "p99_ms": last * 99 // 100, "max_ms": last}
    return {f"{prefix}{name}": round(ordered[at] * 1000, 3) for name, at in marks.items()}
