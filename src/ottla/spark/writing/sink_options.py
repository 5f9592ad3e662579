"""The options of writing with ``format("ottla")``: the Kafka connector's, and those of delivery.

First thing on the planner's side: a wrong option is told before anything is contacted. Standard
library only. The settings ``kafka.*`` are a producer's (``write_settings``). Source: Spark's
Structured Streaming and Kafka guide, writing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeVar

from ottla.client.wire.settings import ClientSettings
from ottla.config.human import parse_duration_ms, parse_size_bytes, size_text
from ottla.config.option import InvalidConfig
from ottla.spark.connection import (
    CLIENT_ID,
    CONNECT_TIMEOUT_MS,
    PREFIX,
    OptionError,
    whole_number,
)
from ottla.spark.option_table import (
    BOOTSTRAP,
    BOOTSTRAP_SHORT,
    INCLUDE_HEADERS,
    PATHS,
    options_of,
)
from ottla.spark.option_values import refuse_unknown
from ottla.spark.positions import INT32_MAX
from ottla.spark.writing.identity import BatchOf, Step
from ottla.spark.writing.staging_place import LOCATION, has_scheme, local_path
from ottla.spark.writing.write_settings import WriteOptions, read_write_settings

Value = TypeVar("Value")

TOPIC = "topic"
DELIVERY = "delivery"
TRANSACTIONAL_ID = "transactional.id"
TRANSACTION_TIMEOUT = "kafka.transaction.timeout.ms"
MAX_BYTES = "exactlyOnceMaxBytes"
ON_MISSING_MARKER = "onMissingMarker"
ON_CHANGED_BATCH = "onChangedBatch"
APP_ID = "txnAppId"
VERSION = "txnVersion"
IGNORE_TIMESTAMP = "ignoreTimestamp"
CHECKPOINT = "checkpointLocation"
ID_PREFIX = "ottla-spark-"

OPTIONS = (
    BOOTSTRAP,
    BOOTSTRAP_SHORT,
    TOPIC,
    DELIVERY,
    TRANSACTIONAL_ID,
    MAX_BYTES,
    LOCATION,
    ON_MISSING_MARKER,
    ON_CHANGED_BATCH,
    APP_ID,
    VERSION,
    IGNORE_TIMESTAMP,
)
SPARKS_OWN = (CHECKPOINT, "queryName", INCLUDE_HEADERS)
"""Handed on by Spark, or of the source; they mean nothing here."""

WITHOUT_MEANING = frozenset(
    {
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "metadata.max.age.ms",
        "metadata.max.idle.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "send.buffer.bytes",
        "socket.connection.setup.timeout.max.ms",
    }
)
"""Settings of Java's producer that nothing here corresponds to. Accepted, as they do no harm."""

RETRY_TIMEOUT_MS = 60_000
"""How long a step of a transaction outlasts a broker that is restarted."""
MAX_BYTES_DEFAULT = 16 << 20
MAX_BYTES_LIMIT = 1 << 30
"""A task's answer is one value of a column, and has to be an array of the JVM's."""

STEPS: dict[str, Step | None] = {"fail": None, "skip": Step.SKIP, "write": Step.WRITE}


class Delivery(Enum):
    """What a failure in the middle may do to the rows in the topic."""

    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where rows go, and how. Times in milliseconds."""

    client: ClientSettings
    write: WriteOptions
    delivery: Delivery
    transactional_id: str | None
    """None: made of the query's id."""
    transaction_timeout_ms: int | None
    """None: chosen by the size of the batch."""
    message_bytes_max: int
    """The most that the messages of all tasks of one batch may hold; more goes to files."""
    missing: Step | None = None
    """What to do with a batch that may be there, as far as markers tell."""
    changed: Step | None = None
    """What it is to do with a batch that is there with other rows."""
    by_hand: BatchOf | None = None
    """The batch that the options themselves name."""
    checkpoint: str | None = None
    """Where a streaming query has its checkpoint, if it told."""
    staging_location: str | None = None
    """Where those files go; None: the driver looks for a place."""

    @property
    def topic(self) -> str | None:
        """Where every row goes; None: the column says it."""
        return self.write.topic

    @property
    def is_exactly_once(self) -> bool:
        """Whether rows go into a transaction."""
        return self.delivery is Delivery.EXACTLY_ONCE


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Return the options that ``given`` spells. Raises OptionError, naming the option."""
    values = options_of(given)
    _refuse_unknown(values)
    delivery = _word(values, DELIVERY, {each.value: each for each in Delivery})
    transactional_id = values.get(TRANSACTIONAL_ID) or values.get(PREFIX + TRANSACTIONAL_ID)
    if delivery is Delivery.AT_LEAST_ONCE:
        names = (
            TRANSACTIONAL_ID,
            PREFIX + TRANSACTIONAL_ID,
            TRANSACTION_TIMEOUT,
            LOCATION,
            APP_ID,
            VERSION,
        )
        for name in names:
            if name.lower() in values:
                message = f"option {name} needs {DELIVERY}={Delivery.EXACTLY_ONCE.value}"
                raise OptionError(message)
    client, write = _producer(values, delivery)
    is_ignored = _word(values, IGNORE_TIMESTAMP, {"false": False, "true": True})
    write = replace(write, ignores_timestamp=is_ignored)
    return SinkOptions(
        client=client,
        write=write,
        delivery=delivery,
        transactional_id=transactional_id,
        transaction_timeout_ms=_duration(values, TRANSACTION_TIMEOUT),
        message_bytes_max=_size(values, MAX_BYTES, MAX_BYTES_DEFAULT, MAX_BYTES_LIMIT),
        missing=_word(values, ON_MISSING_MARKER, STEPS),
        changed=_word(values, ON_CHANGED_BATCH, STEPS),
        by_hand=_by_hand(values),
        checkpoint=values.get(CHECKPOINT.lower()),
        staging_location=_location(values),
    )


def require_streams_own(options: SinkOptions) -> None:
    """Raise OptionError where a streaming query is given what foreachBatch is for."""
    if options.by_hand is not None:
        message = (
            f"options {APP_ID} and {VERSION} name one batch: they are for df.write, above "
            "all in foreachBatch. writeStream knows its batches by itself"
        )
        raise OptionError(message)


def _by_hand(values: Mapping[str, str]) -> BatchOf | None:
    """Return the batch that Delta's options for the same name, None without them."""
    app_id, version = values.get(APP_ID.lower()), values.get(VERSION.lower())
    if app_id is None and version is None:
        return None
    if not app_id or version is None:
        message = f"options {APP_ID} and {VERSION} are given together: a name that stays, a number"
        raise OptionError(message)
    return BatchOf(app_id, whole_number(VERSION, version, least=0))


def _refuse_unknown(values: Mapping[str, str]) -> None:
    for name in PATHS:
        if name in values:
            message = (
                f"format 'ottla' has no path ({values[name]!r}): the topic is named by "
                f".option({TOPIC!r}, ...), then .save() or .start()"
            )
            raise OptionError(message)
    where = "for writing with format 'ottla'"
    refuse_unknown(values, OPTIONS, where, also=SPARKS_OWN)


def _producer(values: Mapping[str, str], delivery: Delivery) -> tuple[ClientSettings, WriteOptions]:
    ours = {PREFIX + TRANSACTIONAL_ID, TRANSACTION_TIMEOUT}
    ours.update(PREFIX + name for name in WITHOUT_MEANING)
    texts = {
        name.removeprefix(PREFIX): text
        for name, text in values.items()
        if name.startswith(PREFIX) and name not in ours
    }
    texts.setdefault("bootstrap.servers", values.get(BOOTSTRAP_SHORT, ""))
    if not texts["bootstrap.servers"].strip():
        message = f"option {BOOTSTRAP} is missing: give host:port of a broker, or several"
        raise OptionError(message)
    texts.setdefault("client.id", CLIENT_ID)
    texts.setdefault("default.api.timeout.ms", str(RETRY_TIMEOUT_MS))
    texts.setdefault("socket.connection.setup.timeout.ms", str(CONNECT_TIMEOUT_MS))
    topic = values.get(TOPIC)
    if topic is not None and not topic.strip():
        message = f"option {TOPIC} is empty"
        raise OptionError(message)
    try:
        client, write = read_write_settings(texts, topic)
    except InvalidConfig as error:
        raise OptionError(f"option {PREFIX}{error.key}: {error.why}") from error
    if delivery is Delivery.EXACTLY_ONCE and not write.sending.is_idempotent:
        message = (
            f"{DELIVERY}={delivery.value} needs kafka.acks=all, kafka.enable.idempotence=true and "
            "at most 5 kafka.max.in.flight.requests.per.connection"
        )
        raise OptionError(message)
    return client, write


def _word(values: Mapping[str, str], name: str, words: Mapping[str, Value]) -> Value:
    """Return what the option's word means; the first of ``words`` is the default."""
    text = values.get(name.lower(), next(iter(words))).strip().lower()
    if text not in words:
        message = f"option {name} is {' or '.join(words)}, not {text!r}"
        raise OptionError(message)
    return words[text]


def transactional_id_of(options: SinkOptions, batch: BatchOf) -> str:
    """Return whose transactions those of a sink are. A stream has one sink: the query's id does."""
    return options.transactional_id or ID_PREFIX + batch.query_id


def _location(values: Mapping[str, str]) -> str | None:
    text = values.get(LOCATION.lower())
    if text is not None and local_path(text) is None and not has_scheme(text):
        message = (
            f"option {LOCATION} is an absolute path or a URI, that the driver and all executors "
            f"share, not {text!r}"
        )
        raise OptionError(message)
    return text


def _duration(values: Mapping[str, str], name: str) -> int | None:
    """Return the milliseconds of an option, as a request has room for them."""
    text = values.get(name.lower())
    if text is None:
        return None
    try:
        found_ms = int(text) if text.strip().isdigit() else parse_duration_ms(text)
    except ValueError as error:
        message = f"option {name} is a time, such as 60000 or 60s, not {text!r}"
        raise OptionError(message) from error
    if not 1 <= found_ms <= INT32_MAX:
        message = f"option {name} is from 1 ms to {INT32_MAX} ms, not {text!r}"
        raise OptionError(message)
    return found_ms


def _size(values: Mapping[str, str], name: str, default: int, limit: int) -> int:
    text = values.get(name.lower())
    if text is None:
        return default
    try:
        size_bytes = int(text) if text.strip().isdigit() else parse_size_bytes(text)
    except ValueError as error:
        message = f"option {name} is a size, such as 64m, not {text!r}"
        raise OptionError(message) from error
    if not 0 < size_bytes <= limit:
        message = f"option {name} is at most {size_text(limit)}, not {text!r}"
        raise OptionError(message)
    return size_bytes
