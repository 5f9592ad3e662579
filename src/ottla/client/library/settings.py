"""The settings of a client: as arguments, or by the keys of librdkafka's and Java's clients.

Owns the keys and what they mean; does no I/O. Source: librdkafka's CONFIGURATION.md, Kafka's
documentation of producer and consumer configs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ottla.client.library.failures import BadArgument
from ottla.client.library.gathering import ProducerSettings
from ottla.client.wire.settings import KNOWN as KNOWN_OF_CONNECTIONS
from ottla.client.wire.settings import ClientSettings, parse_bootstrap, read_settings
from ottla.config.option import InvalidConfig
from ottla.records.compression import Codec

CONNECT_TIMEOUT_MS = 5_000
PROTOCOLS = ("auto", "consumer", "classic")
RESETS = ("earliest", "latest", "error")
CODECS = {"none": Codec.NONE, **{each.name.lower(): each for each in Codec}}


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """How a consumer reads; the defaults are Kafka's."""

    group: str | None = None
    group_protocol: str = "auto"
    """"consumer": KIP-848; "classic"; "auto": the newer one where the broker has it."""
    auto_offset_reset: str = "latest"
    """Where to begin without a committed offset: "earliest", "latest", or "error"."""
    auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    """How long the application may be away from the consumer before it is taken for stuck."""
    read_committed: bool = False
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 << 20
    partition_max_bytes: int = 1 << 20
    topics_refresh_ms: int = 60_000
    """How often a pattern is matched against the topics there are."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a client."""

    connections: ClientSettings = field(default_factory=ClientSettings)
    producer: ProducerSettings = field(default_factory=ProducerSettings)
    consumer: ConsumerSettings = field(default_factory=ConsumerSettings)


def settings_of(
    bootstrap: str,
    *,
    client_id: str,
    tls: bool | str,
    username: str | None,
    password: str | None,
    mechanism: str,
) -> Settings:
    """Return the settings that the arguments of a client mean. Raises BadArgument."""
    if not isinstance(bootstrap, str):
        raise BadArgument("the bootstrap address", f'expected "host:port", found {bootstrap!r}')
    texts = {"bootstrap.servers": bootstrap, "client.id": client_id}
    if username is not None:
        texts |= {"sasl.username": username, "sasl.password": password or ""}
        texts["sasl.mechanism"] = mechanism
    if tls or username is not None:
        texts["security.protocol"] = ("SASL_" if username is not None else "") + (
            "SSL" if tls else "PLAINTEXT"
        )
    if isinstance(tls, str):
        texts["ssl.ca.location"] = tls
    return read_config(texts)


def read_config(config: Mapping[str, Any]) -> Settings:
    """Return the settings that a configuration means. Raises BadArgument, naming near keys."""
    connections: dict[str, str] = {}
    parts: dict[str, dict[str, Any]] = {"producer": {}, "consumer": {}}
    for key, value in config.items():
        if key in _KEYS:
            part, name, read = _KEYS[key]
            try:
                parts[part][name] = read(value)
            except (TypeError, ValueError) as error:
                raise BadArgument(f"the setting {key}", f"{value!r}: {error}") from None
        elif key in KNOWN_OF_CONNECTIONS:
            connections[key] = str(value)
        else:
            raise BadArgument(f"the setting {key}", "there is no such key", fix=_near(key))
    try:
        found = read_settings(connections)
    except InvalidConfig as error:
        raise BadArgument("the settings", str(error)) from error
    if "socket.connection.setup.timeout.ms" not in connections:
        found = replace(found, connect_timeout_ms=CONNECT_TIMEOUT_MS)
    return Settings(
        found,
        changed(ProducerSettings(), parts["producer"]),
        changed(ConsumerSettings(), parts["consumer"]),
    )


def changed(settings: Any, values: Mapping[str, Any]) -> Any:
    """Return ``settings`` with ``values`` that are not None. Raises BadArgument."""
    given = {name: value for name, value in values.items() if value is not None}
    new = replace(settings, **given)
    check(new)
    return new


def check(settings: ProducerSettings | ConsumerSettings) -> None:
    """Raise BadArgument for settings that contradict each other or mean nothing."""
    if isinstance(settings, ProducerSettings):
        if settings.acks not in (-1, 0, 1):
            raise BadArgument("acks", f"expected -1 (all), 0 or 1, found {settings.acks!r}")
        if settings.transactional_id is not None and settings.acks != -1:
            raise BadArgument("acks", "transactions need acks=-1 (all)")
        if settings.transactional_id is not None and not settings.is_idempotent:
            raise BadArgument("enable.idempotence", "transactions need idempotence")
        return
    if settings.rebalance_timeout_ms <= 0:
        why = f"{settings.rebalance_timeout_ms} is no time in ms"
        raise BadArgument("max_poll_interval_ms", why)
    if settings.group_protocol not in PROTOCOLS:
        why = f"{settings.group_protocol!r} is none of {', '.join(PROTOCOLS)}"
        raise BadArgument("group_protocol", why)
    if settings.auto_offset_reset not in RESETS:
        why = f"{settings.auto_offset_reset!r} is none of {', '.join(RESETS)}"
        raise BadArgument("auto_offset_reset", why)


def codec_named(name: str) -> Codec:
    """Return the codec. Raises BadArgument."""
    if name not in CODECS:
        raise BadArgument("compression", f"{name!r} is none of {', '.join(CODECS)}")
    return CODECS[name]


def parse_addresses(text: str) -> None:
    """Raise BadArgument unless ``text`` is a list of host:port."""
    try:
        parse_bootstrap(text)
    except InvalidConfig as error:
        raise BadArgument("the bootstrap address", str(error)) from error


def _truth(value: object) -> bool:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise ValueError("expected true or false")
    return text == "true"


def _acks(value: object) -> int:
    return -1 if str(value) == "all" else int(str(value))


def _whole(value: object) -> int:
    found = int(str(value))
    if found < 0:
        raise ValueError("expected 0 or more")
    return found


def _codec(value: object) -> Codec:
    if str(value) not in CODECS:
        raise ValueError(f"expected one of {', '.join(CODECS)}")
    return CODECS[str(value)]


def _level(value: object) -> int | None:
    return None if int(str(value)) == -1 else int(str(value))


def _reset(value: object) -> str:
    names = {"smallest": "earliest", "beginning": "earliest", "largest": "latest", "end": "latest",
             "none": "error"}  # fmt: skip
    found = names.get(str(value), str(value))
    if found not in RESETS:
        raise ValueError(f"expected one of {', '.join(RESETS)}")
    return found


def _protocol(value: object) -> str:
    found = str(value).lower()
    if found not in PROTOCOLS:
        raise ValueError(f"expected one of {', '.join(PROTOCOLS)}")
    return found


def _committed(value: object) -> bool:
    if value not in ("read_committed", "read_uncommitted"):
        raise ValueError("expected read_committed or read_uncommitted")
    return value == "read_committed"


_KEYS: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "acks": ("producer", "acks", _acks),
    "request.required.acks": ("producer", "acks", _acks),
    "linger.ms": ("producer", "linger_ms", float),
    "queue.buffering.max.ms": ("producer", "linger_ms", float),
    "batch.size": ("producer", "batch_size_bytes", _whole),
    "buffer.memory": ("producer", "buffer_bytes", _whole),
    "compression.type": ("producer", "codec", _codec),
    "compression.codec": ("producer", "codec", _codec),
    "compression.level": ("producer", "level", _level),
    "enable.idempotence": ("producer", "is_idempotent", _truth),
    "message.timeout.ms": ("producer", "delivery_timeout_ms", _whole),
    "transactional.id": ("producer", "transactional_id", str),
    "transaction.timeout.ms": ("producer", "transaction_timeout_ms", _whole),
    "allow.auto.create.topics": ("producer", "may_create_topics", _truth),
    "group.id": ("consumer", "group", str),
    "group.protocol": ("consumer", "group_protocol", _protocol),
    "auto.offset.reset": ("consumer", "auto_offset_reset", _reset),
    "enable.auto.commit": ("consumer", "auto_commit", _truth),
    "auto.commit.interval.ms": ("consumer", "auto_commit_interval_ms", _whole),
    "session.timeout.ms": ("consumer", "session_timeout_ms", _whole),
    "max.poll.interval.ms": ("consumer", "rebalance_timeout_ms", _whole),
    "isolation.level": ("consumer", "read_committed", _committed),
    "fetch.max.wait.ms": ("consumer", "max_wait_ms", _whole),
    "fetch.wait.max.ms": ("consumer", "max_wait_ms", _whole),
    "fetch.min.bytes": ("consumer", "min_bytes", _whole),
    "fetch.max.bytes": ("consumer", "max_bytes", _whole),
    "max.partition.fetch.bytes": ("consumer", "partition_max_bytes", _whole),
    "topic.metadata.refresh.interval.ms": ("consumer", "topics_refresh_ms", _whole),
    "metadata.max.age.ms": ("consumer", "topics_refresh_ms", _whole),
}
KNOWN = (*KNOWN_OF_CONNECTIONS, *_KEYS)
"""Every key that ``read_config`` knows."""


def _near(key: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(str(key), KNOWN, 2)
    return f"did you mean {' or '.join(near)}?" if near else "docs/client.md lists the keys"
