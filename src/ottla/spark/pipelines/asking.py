"""What a pipeline's sources and sinks name, held against the cluster: before Spark tries.

Between ``recording``, which finds the options, and the command line. A topic that is not there, an
address at which nobody answers or an option that a sink does not know is told in a second, with the
place that names it, instead of after half a minute with a plan. Blocks; reads no records and makes
no topics. Imports no Spark.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from ottla.client.blocking.cluster import BlockingClient
from ottla.client.wire.backoff import MISSING
from ottla.client.wire.errors import ConnectionFailed
from ottla.client.wire.settings import ClientSettings
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.spark.lookup import partitions_of
from ottla.spark.options import parse_options
from ottla.spark.writing.sink_options import parse_sink_options

Connect = Callable[[ClientSettings], BlockingClient]


class Asked(NamedTuple):
    """A source or a sink of topics, as a transformation defines it."""

    name: str
    """The name of the flow that reads, or of the sink."""
    place: str
    """``file:line``."""
    options: Mapping[str, str]
    is_sink: bool


class Found(NamedTuple):
    """What came of asking; each a line for people."""

    errors: tuple[str, ...]
    notes: tuple[str, ...]
    """What may be as it should."""
    is_unreachable: bool = False
    """Whether some address did not answer."""


def ask(everything: Iterable[Asked], connect: Connect = BlockingClient) -> Found:
    """Return what is wrong with options, addresses and topics. Raises nothing for these."""
    errors: dict[str, None] = {}
    notes: dict[str, None] = {}
    is_unreachable = False
    for each in everything:
        try:
            said = _sink(each, connect) if each.is_sink else _source(each, connect)
        except OttlaError as error:
            is_unreachable |= isinstance(error, ConnectionFailed)
            why = error.why if isinstance(error, KafkaError) and error.why else str(error)
            errors[f"{each.place}: {each.name}: {why}"] = None
        else:
            notes.update(dict.fromkeys(said))
    return Found(tuple(errors), tuple(notes), is_unreachable)


def _source(asked: Asked, connect: Connect) -> list[str]:
    options = parse_options(asked.options)
    settings = options.settings(retry_timeout_ms=options.first_retry_ms)
    # Nobody waits for an address that may be wrong: asking is for finding that out.
    with connect(replace(settings, awaits_cluster=False)) as client:
        if not partitions_of(client, options):
            return [f"{asked.place}: {asked.name}: no topic matches {options.pattern} yet"]
    return []


def _sink(asked: Asked, connect: Connect) -> list[str]:
    options = parse_sink_options(asked.options)
    if options.topic is None:
        return []
    with connect(options.client) as client:
        there = client.retrying(lambda: client.look_up([options.topic or ""]))
    topic = there.topics.get(options.topic)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
    if error in MISSING:
        missing = (
            f"{asked.place}: {asked.name}: topic {options.topic} is not there: the first write "
            "makes it where the broker does that (auto.create.topics.enable)"
        )
        return [missing]
    if error:
        raise KafkaError(error, f"topic {options.topic}: {error.text}")
    return []
