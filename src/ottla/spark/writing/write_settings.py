"""The producer's settings that a sink is given as ``kafka.*`` options: names, defaults, meanings.

The planner's side, and carried to the executors: standard library only. Names and words are those
of Kafka's producer; what cannot be honoured is refused. Source: Kafka's documentation of the
producer's settings.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from ottla.client.blocking.producer import SendingSettings
from ottla.client.wire.settings import ClientSettings, read_settings
from ottla.config.human import parse_duration_ms
from ottla.config.option import InvalidConfig
from ottla.records.compression import GZIP_LEVEL_DEFAULT, Codec

Value = TypeVar("Value")

BATCH_BYTES = 900_000
"""Below the default ``max.message.bytes`` of a broker even when nothing compresses."""
CODECS = {codec.name.lower(): codec for codec in Codec}
LEVELS = {
    "compression.gzip.level": (Codec.GZIP, -1, 9),
    "compression.lz4.level": (Codec.LZ4, 1, 17),
    "compression.zstd.level": (Codec.ZSTD, -131072, 22),
}
ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}
REFUSED = {
    "transactional.id": "the option delivery=exactly-once takes care of transactions",
    "key.serializer": "keys and values are bytes or strings",
    "value.serializer": "keys and values are bytes or strings",
    "partitioner.class": "the column partition says where a row goes",
}
IN_FLIGHT_IDEMPOTENT_MAX = 5


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How rows become batches, and how these are sent."""

    topic: str | None = None
    """Where every row goes; None: the column ``topic`` says."""
    codec: Codec = Codec.NONE
    level: int | None = None
    """None: Kafka's default for the codec."""
    batch_bytes: int = BATCH_BYTES
    """A batch is closed before it grows larger, uncompressed."""
    record_bytes_max: int = 1 << 20
    """A larger row is refused."""
    sending: SendingSettings = field(default_factory=SendingSettings)
    ignores_timestamp: bool = False
    """Whether a column ``timestamp`` is left alone: rows have the time of writing."""


def read_write_settings(
    texts: Mapping[str, str], topic: str | None = None
) -> tuple[ClientSettings, WriteOptions]:
    """Return what the producer's settings say, given by their names without ``kafka.``.

    Raises InvalidConfig, naming the setting.
    """
    left = {name.lower(): text.strip() for name, text in texts.items()}
    for name, why in REFUSED.items():
        if name in left:
            raise InvalidConfig(name, left[name], f"not for a sink: {why}")
    codec = _word(left, "compression.type", CODECS, Codec.NONE)
    levels = {each: _number(left, name, low, high) for name, (each, low, high) in LEVELS.items()}
    if levels[Codec.GZIP] is None:
        levels[Codec.GZIP] = GZIP_LEVEL_DEFAULT
    request_bytes = _number(left, "max.request.size", 1, 1 << 30) or 1 << 20
    batch_bytes = _number(left, "batch.size", 0, 1 << 30)
    batch_bytes = BATCH_BYTES if batch_bytes is None else max(batch_bytes, 1)
    if _number(left, "retries", 0, 1 << 31) == 0:
        raise InvalidConfig("retries", "0", "delivery.timeout.ms bounds the retries")
    _milliseconds(left, "linger.ms", 0)  # a batch goes when it is full or the task's rows are over
    options = WriteOptions(
        topic=topic,
        codec=codec,
        level=GZIP_LEVEL_DEFAULT
        if codec is Codec.GZIP and not levels[codec]
        else levels.get(codec),
        batch_bytes=min(batch_bytes, request_bytes),
        record_bytes_max=request_bytes,
        sending=_sending(left, request_bytes),
    )
    return read_settings(left), options


def _sending(left: dict[str, str], request_bytes: int) -> SendingSettings:
    acks = _word(left, "acks", ACKS, -1)
    in_flight = _number(left, "max.in.flight.requests.per.connection", 1, 1 << 20) or 5
    wanted = left.get("enable.idempotence")
    is_idempotent = _word(left, "enable.idempotence", {"true": True, "false": False}, default=True)
    if wanted and is_idempotent and (acks != -1 or in_flight > IN_FLIGHT_IDEMPOTENT_MAX):
        why = "needs acks=all and at most 5 max.in.flight.requests.per.connection"
        raise InvalidConfig("enable.idempotence", wanted, why)
    return SendingSettings(
        acks=acks,
        is_idempotent=is_idempotent and acks == -1 and in_flight <= IN_FLIGHT_IDEMPOTENT_MAX,
        in_flight_max=in_flight,
        request_bytes=request_bytes,
        buffer_bytes=_number(left, "buffer.memory", 1, 1 << 40) or 32 << 20,
        delivery_timeout_ms=_milliseconds(left, "delivery.timeout.ms", 120_000),
        metadata_timeout_ms=_milliseconds(left, "max.block.ms", 10_000),
    )


def _word(left: dict[str, str], name: str, words: Mapping[str, Value], default: Value) -> Value:
    text = left.pop(name, None)
    if text is None:
        return default
    if text.lower() not in words:
        raise InvalidConfig(name, text, f"one of {', '.join(words)}")
    return words[text.lower()]


def _number(left: dict[str, str], name: str, low: int, high: int) -> int | None:
    text = left.pop(name, None)
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError as error:
        raise InvalidConfig(name, text, "a whole number") from error
    if not low <= number <= high:
        raise InvalidConfig(name, text, f"between {low} and {high}")
    return number


def _milliseconds(left: dict[str, str], name: str, default: int) -> int:
    text = left.pop(name, None)
    if text is None:
        return default
    try:
        return int(text) if text.isdigit() else parse_duration_ms(text)
    except ValueError as error:
        raise InvalidConfig(name, text, str(error)) from error
