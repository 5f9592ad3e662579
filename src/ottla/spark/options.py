"""The options of ``format("ottla")`` as values: what to read, from where to where, in what pieces.

First thing on the planner's side. Knows no network: a wrong option is told before anything is
contacted. The names and what they mean are in ``option_table``, those of ``kafka.*`` in
``connection``.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ottla.client.wire.fetching import FetchLimits
from ottla.client.wire.settings import ClientSettings
from ottla.config.human import parse_duration_ms
from ottla.ids import TopicPartition
from ottla.spark import option_table as names
from ottla.spark.connection import (
    PREFIX,
    OptionError,
    check_names,
    client_settings,
    fetch_limits,
    whole_number,
)
from ottla.spark.offsets import (
    EARLIEST,
    LATEST,
    Bound,
    parse_assignment,
    parse_bound,
    parse_timestamp,
    parse_timestamps,
)
from ottla.spark.option_table import COLUMNS, HEADERS, OPTIONS, Use
from ottla.spark.option_values import parsed, refuse_unknown

if TYPE_CHECKING:
    from ottla.spark.values.value_options import ValueOptions

READ_RETRY_TIMEOUT_MS = 60_000
"""How long a task, and a stream that has begun, outlasts a broker that is restarted."""
DEFAULT_TRIGGER_DELAY_MS = 15 * 60_000


@dataclass(frozen=True, slots=True)
class TriggerOptions:
    """How a stream divides what comes into micro-batches. None: no limit."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = DEFAULT_TRIGGER_DELAY_MS
    """After so long a micro-batch begins with fewer than ``min_offsets``."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What to read. Exactly one of ``topics``, ``pattern`` and ``partitions`` is given."""

    client: ClientSettings = field(repr=False)
    fetch: FetchLimits
    topics: tuple[str, ...]
    pattern: str
    """A regular expression to be found in names; empty when not given."""
    partitions: tuple[TopicPartition, ...]
    starting: Bound
    """Inclusive."""
    ending: Bound
    """Exclusive; without meaning in a stream."""
    latest_when_none_as_new: bool
    fail_on_data_loss: bool
    accept_topic_ids: bool
    """Whether topics may have other ids than a stream's checkpoint says, at its start."""
    min_partitions: int
    max_records_per_partition: int
    """0 for no limit, as with ``min_partitions``."""
    min_records_per_partition: int | None
    """0: each range has its own task; None: as a stream finds best, 0 in a batch."""
    columns: tuple[str, ...]
    value: "ValueOptions | None"
    """What ``value`` is decoded to; None: it stays binary."""
    trigger: TriggerOptions
    group: str
    """The group that a stream commits as; empty for none."""
    first_retry_ms: int
    """How long planning outlasts a cluster that does not answer, before it ever did."""
    later_retry_ms: int
    """The same for a stream that has begun."""
    read_retry_ms: int
    """The same for a task."""

    @property
    def include_headers(self) -> bool:
        """Whether headers are a column."""
        return HEADERS in self.columns

    @property
    def read_committed(self) -> bool:
        """Whether records of transactions count only when they are committed."""
        return self.fetch.read_committed

    @property
    def says_tasks(self) -> bool:
        """Whether the user says which ranges share a task, or that none do."""
        return self.min_records_per_partition is not None or self.min_partitions > 0

    def settings(self, *, retry_timeout_ms: int) -> ClientSettings:
        """Return the client's settings, for calls that are tried again for so long.

        A broker that refuses the first connection may be starting: it is tried again, too.
        A topic that is not there is asked for as long as planning outlasts trouble at its first
        start, wherever it is missed: in a second query of the same stream it is no less gone.
        """
        return replace(
            self.client,
            retry_timeout_ms=retry_timeout_ms,
            missing_topic_ms=min(self.first_retry_ms, retry_timeout_ms),
            awaits_cluster=True,
        )


def parse_options(given: Mapping[str, str], use: Use = Use.BOTH) -> SourceOptions:
    """Return the options that ``given`` spells, in any case, for a batch or a streaming query.

    With ``Use.BOTH``, what only one of the two allows is let through. Raises OptionError, naming
    the option.
    """
    values = names.options_of(given)
    kafka = {
        name.removeprefix(PREFIX): value
        for name, value in values.items()
        if name.startswith(PREFIX) and name != names.BOOTSTRAP
    }
    _refuse_unknown(values)
    check_names(kafka)
    _refuse_misplaced(values, use)
    topics, pattern, partitions = _what_to_read(values)
    client = client_settings(kafka | {"bootstrap.servers": _bootstrap(values)})
    retries = _Retries(values, client if "default.api.timeout.ms" in kafka else None)
    return SourceOptions(
        client=client,
        fetch=fetch_limits(kafka),
        topics=topics,
        pattern=pattern,
        partitions=partitions,
        starting=_starting(values, use),
        ending=_ending(values),
        latest_when_none_as_new=_is_latest_when_none_as_new(values),
        fail_on_data_loss=_boolean(values, names.FAIL_ON_DATA_LOSS, default=True),
        accept_topic_ids=_boolean(values, names.ACCEPT_TOPIC_IDS, default=False),
        min_partitions=_number(values, names.MIN_PARTITIONS),
        max_records_per_partition=_number(values, names.MAX_RECORDS_PER_PARTITION),
        min_records_per_partition=_min_records(values),
        columns=_columns(values),
        value=_value(values),
        trigger=_trigger(values),
        group=_group(values),
        first_retry_ms=retries.first_ms,
        later_retry_ms=retries.later_ms,
        read_retry_ms=retries.read_ms,
    )


def _refuse_unknown(values: Mapping[str, str]) -> None:
    for name in names.PATHS:
        if name in values:
            message = (
                f"format 'ottla' has no path ({values[name]!r}): topics are named by "
                f".option({names.SUBSCRIBE!r}, ...) and then .load()"
            )
            raise OptionError(message)
    refuse_unknown(values, names.NAMES, "of format 'ottla'")


def _refuse_misplaced(values: Mapping[str, str], use: Use) -> None:
    for row in OPTIONS:
        is_misplaced = Use.BOTH not in {use, row.use} and row.use is not use
        if row.name.lower() in values and is_misplaced:
            message = f"option {row.name} has a meaning in a {row.use.value} query only"
            raise OptionError(message)


def _bootstrap(values: Mapping[str, str]) -> str:
    text = values.get(names.BOOTSTRAP) or values.get(names.BOOTSTRAP_SHORT)
    if not text or not text.strip():
        message = f"option {names.BOOTSTRAP} is missing: give host:port of a broker, or several"
        raise OptionError(message)
    return text.strip()


def _what_to_read(
    values: Mapping[str, str],
) -> tuple[tuple[str, ...], str, tuple[TopicPartition, ...]]:
    ways = (names.SUBSCRIBE, names.SUBSCRIBE_PATTERN, names.ASSIGN)
    if sum(way.lower() in values for way in ways) != 1:
        message = (
            f"give exactly one of the options {names.SUBSCRIBE} (topic names), "
            f"{names.SUBSCRIBE_PATTERN} (a regular expression) and {names.ASSIGN} (JSON)"
        )
        raise OptionError(message)
    if names.ASSIGN in values:
        return (), "", parsed(names.ASSIGN, lambda: parse_assignment(values[names.ASSIGN]))
    if names.SUBSCRIBE_PATTERN.lower() in values:
        return (), _pattern(values[names.SUBSCRIBE_PATTERN.lower()]), ()
    topics = tuple(dict.fromkeys(name.strip() for name in values[names.SUBSCRIBE].split(",")))
    if not all(topics):
        message = f"option {names.SUBSCRIBE}: an empty topic name in {values[names.SUBSCRIBE]!r}"
        raise OptionError(message)
    return topics, "", ()


def _pattern(text: str) -> str:
    if _has_nested_set(text):
        message = (
            f"option {names.SUBSCRIBE_PATTERN}: {text!r}: sets within sets, and && in them, are of "
            "Java's expressions only: to Python's they are letters. Say it without them"
        )
        raise OptionError(message)
    try:
        re.compile(text)
    except re.error as error:
        message = (
            f"option {names.SUBSCRIBE_PATTERN}: {text!r} is no expression of Python's: {error}"
        )
        raise OptionError(message) from error
    if not text:
        message = f"option {names.SUBSCRIBE_PATTERN}: an empty expression"
        raise OptionError(message)
    return text


def _has_nested_set(text: str) -> bool:
    """Tell whether a set holds another or ``&&``: Java's way to say what is in both."""
    is_inside, at = False, 0
    while at < len(text):
        if is_inside and (text[at] == "[" or text.startswith("&&", at)):
            return True
        if text[at] == "\\":
            at += 1
        elif is_inside:
            is_inside = text[at] != "]"
        elif text[at] == "[":
            is_inside = True
            at += text.startswith("^", at + 1)
            at += text.startswith("]", at + 1)  # which is a letter there
        at += 1
    return False


def _starting(values: Mapping[str, str], use: Use) -> Bound:
    found = _by_time(values, names.STARTING_TIMESTAMP, names.STARTING_BY_TIMESTAMP)
    if found is not None:
        return found
    name = names.STARTING_OFFSETS
    text = values.get(name.lower())
    if text is None:
        return Bound(name, LATEST if use is Use.STREAM else EARLIEST)
    refused = LATEST if use is Use.BATCH else None
    return parsed(name, lambda: parse_bound(name, text, refused=refused))


def _ending(values: Mapping[str, str]) -> Bound:
    found = _by_time(values, names.ENDING_TIMESTAMP, names.ENDING_BY_TIMESTAMP)
    if found is not None:
        return found
    name = names.ENDING_OFFSETS
    text = values.get(name.lower())
    if text is None:
        return Bound(name, LATEST)
    return parsed(name, lambda: parse_bound(name, text, refused=EARLIEST))


def _by_time(values: Mapping[str, str], everywhere: str, each: str) -> Bound | None:
    one, many = values.get(everywhere.lower()), values.get(each.lower())
    if one is not None:
        return parsed(everywhere, lambda: parse_timestamp(everywhere, one))
    if many is not None:
        return parsed(each, lambda: parse_timestamps(each, many))
    return None


def _is_latest_when_none_as_new(values: Mapping[str, str]) -> bool:
    text = values.get(names.TIMESTAMP_STRATEGY.lower(), "error").strip().lower()
    if text not in {"error", "latest"}:
        message = f"option {names.TIMESTAMP_STRATEGY} is error or latest, not {text!r}"
        raise OptionError(message)
    return text == "latest"


def _value(values: Mapping[str, str]) -> "ValueOptions | None":
    if not any(name.lower() in values for name in names.VALUE_OPTIONS):
        return None  # and Spark's types need not be imported here
    from ottla.spark.values.value_options import parse_value_options

    return parse_value_options(values)


def _columns(values: Mapping[str, str]) -> tuple[str, ...]:
    includes_headers = _boolean(values, names.INCLUDE_HEADERS, default=False)
    text = values.get(names.COLUMNS_OPTION)
    if text is None:
        return (*COLUMNS, HEADERS) if includes_headers else COLUMNS
    known = {name.lower(): name for name in (*COLUMNS, HEADERS)}
    asked = [name.strip().lower() for name in text.split(",")]
    for name in asked:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            meant = f"did you mean {known[near[0]]}? " if near else ""
            message = (
                f"option {names.COLUMNS_OPTION}: no column {name!r}; {meant}"
                f"there are {', '.join(known.values())}"
            )
            raise OptionError(message)
    if len(set(asked)) < len(asked):
        message = f"option {names.COLUMNS_OPTION}: a column is named twice in {text!r}"
        raise OptionError(message)
    return tuple(known[name] for name in asked)


def _trigger(values: Mapping[str, str]) -> TriggerOptions:
    most = _number(values, names.MAX_OFFSETS_PER_TRIGGER) or None
    least = _number(values, names.MIN_OFFSETS_PER_TRIGGER) or None
    if most is not None and least is not None and least > most:
        message = (
            f"option {names.MIN_OFFSETS_PER_TRIGGER} ({least}) is above "
            f"{names.MAX_OFFSETS_PER_TRIGGER} ({most})"
        )
        raise OptionError(message)
    text = values.get(names.MAX_TRIGGER_DELAY.lower())
    if text is None:
        return TriggerOptions(most, least)
    delay_ms = parsed(names.MAX_TRIGGER_DELAY, lambda: _duration_ms(text))
    return TriggerOptions(most, least, delay_ms)


def _duration_ms(text: str) -> int:
    bare = text.strip()
    return int(bare) if bare.isascii() and bare.isdigit() else parse_duration_ms(bare)


def _group(values: Mapping[str, str]) -> str:
    text = values.get(names.GROUP_ID)
    if text is not None and not text.strip():
        message = f"option {names.GROUP_ID} is empty"
        raise OptionError(message)
    return (text or "").strip()


class _Retries:
    """How long each side goes on trying; ``client`` is given when the user has said so there."""

    def __init__(self, values: Mapping[str, str], client: ClientSettings | None) -> None:
        count = _number(values, names.NUM_RETRIES, default=3, least=0)
        interval_ms = _number(values, names.RETRY_INTERVAL, default=1000, least=0)
        is_given = any(name.lower() in values for name in (names.NUM_RETRIES, names.RETRY_INTERVAL))
        if client is not None:
            self.first_ms = self.later_ms = self.read_ms = client.retry_timeout_ms
        else:
            self.first_ms = count * interval_ms
            self.later_ms = self.first_ms if is_given else READ_RETRY_TIMEOUT_MS
            self.read_ms = READ_RETRY_TIMEOUT_MS
        self.read_ms = _number(values, names.POLL_TIMEOUT, default=self.read_ms, least=0)


def _min_records(values: Mapping[str, str]) -> int | None:
    if names.MIN_RECORDS_PER_PARTITION.lower() not in values:
        return None
    least = _number(values, names.MIN_RECORDS_PER_PARTITION, least=0)
    if least and names.MIN_PARTITIONS.lower() in values:
        few, many = names.MIN_RECORDS_PER_PARTITION, names.MIN_PARTITIONS
        message = f"option {few} makes fewer tasks, {many} more: give one of them"
        raise OptionError(message)
    return least


def _number(values: Mapping[str, str], name: str, *, default: int = 0, least: int = 1) -> int:
    text = values.get(name.lower())
    return default if text is None else whole_number(name, text, least=least)


def _boolean(values: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = values.get(name.lower(), str(default)).strip().lower()
    if text not in {"true", "false"}:
        message = f"option {name} is true or false, not {text!r}"
        raise OptionError(message)
    return text == "true"
