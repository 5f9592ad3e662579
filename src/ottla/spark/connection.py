"""The options ``kafka.*``: how the cluster is reached, and how fetches are cut.

Owns which of a Kafka consumer's settings become ours, which have no meaning here (no consumer
group, no poll loop) and are let be, and which contradict an option of the source. Reading and
writing share it. Knows no topics. Source: Spark's Structured Streaming and Kafka guide; the
consumer's settings of Apache Kafka 4.3.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ottla.client.wire.fetching import FetchLimits
from ottla.client.wire.security import NAMES as SECURITY_NAMES
from ottla.client.wire.settings import ClientSettings, read_settings
from ottla.config.option import InvalidConfig
from ottla.errors import OttlaError
from ottla.spark.positions import INT32_MAX, INT64_MAX

PREFIX = "kafka."
DIGITS_MAX = 20
"""A number of 64 bits has no more."""
CLIENT_ID = "ottla-spark"
CONNECT_TIMEOUT_MS = 5_000

FETCH = FetchLimits(max_wait_ms=500, max_bytes=8 << 20, partition_max_bytes=4 << 20)
"""A few MiB a fetch: Arrow batches that stay in the processor's cache are the fastest."""

FETCH_SETTINGS = {
    "fetch.max.wait.ms": "max_wait_ms",
    "fetch.min.bytes": "min_bytes",
    "fetch.max.bytes": "max_bytes",
    "max.partition.fetch.bytes": "partition_max_bytes",
}
ISOLATION_LEVEL = "isolation.level"
WITHOUT_MEANING = frozenset(
    {
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "auto.include.jmx.reporter",
        "check.crcs",
        "client.dns.lookup",
        "client.rack",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "exclude.internal.topics",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.max.age.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "send.buffer.bytes",
        "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
    }
)
"""Settings of Java's consumer that nothing here corresponds to. Accepted, as they do no harm."""
REFUSED = {
    "auto.offset.reset": "use startingOffsets, and failOnDataLoss for offsets that are gone",
    "enable.auto.commit": "Spark's checkpoint keeps the progress; group.id= publishes it",
    "interceptor.classes": "classes of Java cannot be used here",
    "key.deserializer": "keys are bytes; cast the column",
    "value.deserializer": "values are bytes; cast the column",
}


class OptionError(OttlaError, ValueError):
    """An option is missing, unknown or has an impossible value."""


def client_settings(given: Mapping[str, str]) -> ClientSettings:
    """Return the client's settings that ``given`` spells: Kafka's keys, without ``kafka.``.

    Keys that are not the client's own are passed over: ``check_names`` has judged them.
    Raises OptionError, naming the option.
    """
    texts = {key: value for key, value in given.items() if _is_the_clients(key)}
    try:
        settings = read_settings({"client.id": CLIENT_ID, **texts})
    except InvalidConfig as error:
        raise OptionError(_refusal(error)) from error
    if "socket.connection.setup.timeout.ms" not in texts:
        settings = replace(settings, connect_timeout_ms=CONNECT_TIMEOUT_MS)
    return settings


def _refusal(error: InvalidConfig) -> str:
    key = error.key
    why = error.why.removeprefix(f"{key}: ")
    if error.value is not None and key not in SECURITY_NAMES:  # which may be secrets
        why = f"{why}, not {error.value!r}"
    near = difflib.get_close_matches(key, _known_names(), n=1)
    if not why.startswith("unknown client setting"):
        return f"option {PREFIX}{key}: {why}"
    meant = f"did you mean {PREFIX}{near[0]}?" if near else "it is no setting of a Kafka consumer"
    return f"unknown option {PREFIX + key!r} of format 'ottla': {meant}"


def _is_the_clients(key: str) -> bool:
    return not (
        key in FETCH_SETTINGS or key in WITHOUT_MEANING or key in REFUSED or key == ISOLATION_LEVEL
    )


def _known_names() -> Iterable[str]:
    return (
        "bootstrap.servers",
        "client.id",
        "default.api.timeout.ms",
        "request.timeout.ms",
        "retry.backoff.ms",
        "retry.backoff.max.ms",
        ISOLATION_LEVEL,
        *sorted(SECURITY_NAMES),
        *FETCH_SETTINGS,
        *sorted(WITHOUT_MEANING),
    )


def check_names(given: Iterable[str]) -> None:
    """Refuse settings that contradict the source. Raises OptionError."""
    for key in given:
        if key in REFUSED:
            message = f"option {PREFIX}{key} cannot be used here: {REFUSED[key]}"
            raise OptionError(message)


def fetch_limits(given: Mapping[str, str]) -> FetchLimits:
    """Return how fetches are cut. Raises OptionError."""
    changes: dict[str, int] = {}
    for key, name in FETCH_SETTINGS.items():
        if key in given:
            changes[name] = whole_number(PREFIX + key, given[key], least=0, most=INT32_MAX)
    level = given.get(ISOLATION_LEVEL, "read_uncommitted").strip().lower()
    if level not in {"read_committed", "read_uncommitted"}:
        message = (
            f"option {PREFIX}{ISOLATION_LEVEL} is read_committed or read_uncommitted, not {level!r}"
        )
        raise OptionError(message)
    is_committed = level == "read_committed"
    return FetchLimits(
        max_wait_ms=changes.get("max_wait_ms", FETCH.max_wait_ms),
        min_bytes=changes.get("min_bytes", FETCH.min_bytes),
        max_bytes=changes.get("max_bytes", FETCH.max_bytes),
        partition_max_bytes=changes.get("partition_max_bytes", FETCH.partition_max_bytes),
        read_committed=is_committed,
    )


def whole_number(name: str, text: str, *, least: int, most: int = INT64_MAX) -> int:
    """Return the number that ``text`` spells, ``least`` to ``most``. Raises OptionError."""
    bare = text.strip()
    is_number = bare.isascii() and bare.isdigit() and len(bare) < DIGITS_MAX
    if not is_number or not least <= int(bare) <= most:
        upward = "on" if most == INT64_MAX else f"to {most}"
        message = f"option {name} is a whole number from {least} {upward}, not {text!r}"
        raise OptionError(message)
    return int(bare)
