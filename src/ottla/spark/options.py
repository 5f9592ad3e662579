"""The options of ``format("ottla")``: the names, defaults and meanings of Spark's Kafka connector.

First thing on the planner's side. Knows no network: a wrong option is told before anything is
contacted. Source: Spark's Structured Streaming and Kafka guide, batch queries.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from ottla.errors import OttlaError
from ottla.ids import TopicPartition
from ottla.spark.offsets import (
    EARLIEST,
    EVERY_EARLIEST,
    EVERY_LATEST,
    LATEST,
    Bound,
    parse_assignment,
    parse_bound,
)

BOOTSTRAP = "kafka.bootstrap.servers"
BOOTSTRAP_SHORT = "bootstrap.servers"
SUBSCRIBE = "subscribe"
ASSIGN = "assign"
STARTING_OFFSETS = "startingOffsets"
ENDING_OFFSETS = "endingOffsets"
INCLUDE_HEADERS = "includeHeaders"

OPTIONS = (
    BOOTSTRAP,
    BOOTSTRAP_SHORT,
    SUBSCRIBE,
    ASSIGN,
    STARTING_OFFSETS,
    ENDING_OFFSETS,
    INCLUDE_HEADERS,
)
"""Every option there is. Spark hands them over with any case."""


class OptionError(OttlaError, ValueError):
    """An option is missing, unknown or has an impossible value."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What to read, from where to where. Exactly one of ``topics`` and ``partitions`` is given."""

    bootstrap: str
    """``host:port`` pairs, separated by commas."""
    topics: tuple[str, ...]
    partitions: tuple[TopicPartition, ...]
    starting: Bound
    """Inclusive."""
    ending: Bound
    """Exclusive."""
    include_headers: bool


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Return the options that ``given`` spells. Raises OptionError, naming the option."""
    values = {name.lower(): value for name, value in given.items()}
    _refuse_unknown(values)
    topics, partitions = _what_to_read(values)
    return SourceOptions(
        bootstrap=_bootstrap(values),
        topics=topics,
        partitions=partitions,
        starting=_bound(values, STARTING_OFFSETS, EVERY_EARLIEST, refused=LATEST),
        ending=_bound(values, ENDING_OFFSETS, EVERY_LATEST, refused=EARLIEST),
        include_headers=_boolean(values, INCLUDE_HEADERS),
    )


def _refuse_unknown(values: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in OPTIONS}
    for name in values:
        if name not in known:
            near = [known[match] for match in difflib.get_close_matches(name, known, n=1)]
            meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(OPTIONS)}"
            message = f"unknown option {name!r} of format 'ottla': {meant}"
            raise OptionError(message)


def _bootstrap(values: Mapping[str, str]) -> str:
    text = values.get(BOOTSTRAP.lower()) or values.get(BOOTSTRAP_SHORT)
    if not text or not text.strip():
        message = f"option {BOOTSTRAP} is missing: give host:port of a broker, or several"
        raise OptionError(message)
    return text.strip()


def _what_to_read(
    values: Mapping[str, str],
) -> tuple[tuple[str, ...], tuple[TopicPartition, ...]]:
    if (SUBSCRIBE in values) == (ASSIGN in values):
        message = f"give exactly one of the options {SUBSCRIBE} (topic names) and {ASSIGN} (JSON)"
        raise OptionError(message)
    if ASSIGN in values:
        try:
            return (), parse_assignment(values[ASSIGN])
        except ValueError as error:
            message = f"option {ASSIGN}: {error}"
            raise OptionError(message) from error
    topics = tuple(dict.fromkeys(name.strip() for name in values[SUBSCRIBE].split(",")))
    if not all(topics):
        message = f"option {SUBSCRIBE}: an empty topic name in {values[SUBSCRIBE]!r}"
        raise OptionError(message)
    return topics, ()


def _bound(values: Mapping[str, str], name: str, default: Bound, *, refused: int) -> Bound:
    text = values.get(name.lower())
    if text is None:
        return default
    try:
        return parse_bound(text, refused=refused)
    except ValueError as error:
        message = f"option {name}: {error}"
        raise OptionError(message) from error


def _boolean(values: Mapping[str, str], name: str) -> bool:
    text = values.get(name.lower(), "false").strip().lower()
    if text not in {"true", "false"}:
        message = f"option {name} is true or false, not {text!r}"
        raise OptionError(message)
    return text == "true"
