"""Which micro-batch a topic has already, what it was, and what follows from that. Pure.

The marker is a group's committed offset, written in the transaction of the batch itself, and the
group is named like the transactional id. So marker and rows are there together or not at all. The
metadata say which batch it was and what it held; the offset is the end of the partition's log, so
that tools which show the lag of groups show none. (Version 1 had the number as offset.)

    offset    int64   the partition's log end
    metadata  JSON    {"ottla": 2, "query": "<id>", "batch": 7, "topic": "<option topic>" or null,
                       "run": "<id>" or null, "rows": 3, "sum": "<16 hex digits>",
                       "plan": "<16 hex digits>" or null}
              or      {"ottla": 1, "query": "<id>", "topic": ...}, with the number as the offset

A number alone says little: Spark plans a batch anew, and larger, when its checkpoint has lost it.
Used by ``delivery`` between InitProducerId (which has ended whatever was open) and the first row.

Brokers forget what idle groups have committed (offsets.retention.minutes), the marker too. So each
transaction leaves a second note before it is committed, outside of it, which does not expire: an
offset of another group, at the same partition. It says which batch was the last to be begun:

    offset    int64   as above
    metadata  JSON    {"ottla-begun": 1, "query": "<id>", "batch": 7, "at": <ms since 1970>}

Decisions: docs/adr, a micro-batch is known by what it is; what was begun is kept for ever.
"""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from ottla.client.wire.coordination import Committed
from ottla.client.wire.transacting import OffsetToCommit
from ottla.config.human import duration_text
from ottla.errors import OttlaError
from ottla.ids import TopicPartition
from ottla.spark.writing.identity import Content, Step

OFFSETS_TOPIC = "__consumer_offsets"
VERSION = 2
NUMBER_AS_OFFSET = 1
BEGUN = "ottla-begun"
BEGUN_VERSION = 1
BEGUN_SUFFIX = "-begun"
"""Behind the transactional id: the group that keeps what was begun."""
FOR_EVER_MS = 100 * 365 * 24 * 3_600_000
KEPT_MS = 20 * 3_600_000
"""So long a marker is surely there: brokers keep offsets for 7 days, or at the least for one."""


class DeliveryError(OttlaError):
    """A batch cannot be delivered exactly once, or not be told whether it has been."""


class Marker(NamedTuple):
    """A batch of a query, as it is committed."""

    query_id: str
    """The id of the query, or the option txnAppId."""
    batch_id: int
    topic: str | None
    """The sink's option; None: the rows say it."""
    run_id: str | None = None
    """Changes with each start of the query; None: not known."""
    content: Content | None = None
    """None: written by a version that did not note it."""
    plan: str | None = None
    """Identifies the planned offsets in the query's checkpoint; None: not known."""

    def __str__(self) -> str:
        return f"batch {self.batch_id} of query {self.query_id}"


class Begun(NamedTuple):
    """The last batch whose transaction came to its end under a name; nobody knows to which end."""

    query_id: str
    batch_id: int
    at_ms: int
    """A time before the transaction, in ms since 1970, by the driver's clock."""

    def __str__(self) -> str:
        return f"batch {self.batch_id} of query {self.query_id}"


class Rules(NamedTuple):
    """What is to be thought of a batch that is not simply the next one."""

    are_gaps_legal: bool = False
    """Whether batches may be left out: foreachBatch writes when it likes, writeStream always."""
    missing: Step | None = None
    """What to do with a batch that may have been written before, as far as its marker tells;
    None: it is an error. ``onMissingMarker`` says it for one start, since somebody has looked."""
    changed: Step | None = None
    """What to do with a batch that is there with other rows; None: it is an error."""


def marker_place(topic: str | None) -> TopicPartition:
    """Return the partition under which the group keeps the marker: one that surely exists."""
    return TopicPartition(OFFSETS_TOPIC if topic is None else topic, 0)


def write_marker(marker: Marker, log_end: int) -> OffsetToCommit:
    """Return what to commit; ``log_end`` is that of ``marker_place``."""
    metadata: dict[str, Any] = {
        "ottla": VERSION,
        "query": marker.query_id,
        "batch": marker.batch_id,
        "topic": marker.topic,
        "run": marker.run_id,
        "plan": marker.plan,
    }
    if marker.content is not None:
        metadata |= {"rows": marker.content.rows, "sum": f"{marker.content.sum:016x}"}
    return OffsetToCommit(log_end, json.dumps(metadata, ensure_ascii=False))


def read_marker(committed: Committed | None) -> Marker | None:
    """Return what was committed, None for nothing. Raises DeliveryError for what is not ours."""
    if committed is None:
        return None
    try:
        metadata = json.loads(committed.metadata)
        query_id, topic = str(metadata["query"]), metadata["topic"]
        if metadata["ottla"] == NUMBER_AS_OFFSET:
            return Marker(query_id, committed.offset, topic)
        if metadata["ottla"] == VERSION:
            content = None
            if "rows" in metadata:
                content = Content(int(metadata["rows"]), int(metadata["sum"], 16))
            number = int(metadata["batch"])
            return Marker(
                query_id, number, topic, metadata.get("run"), content, metadata.get("plan")
            )
    except (ValueError, LookupError, TypeError):
        pass
    raise _not_ours("group named like the transactional id", committed)


def _not_ours(whose: str, committed: Committed) -> DeliveryError:
    return DeliveryError(
        f"the {whose} has an offset that is no marker of this sink "
        f"(offset {committed.offset}, metadata {committed.metadata!r}): choose another id"
    )


def begun_group(transactional_id: str) -> str:
    """Return the group that keeps what was begun."""
    return transactional_id + BEGUN_SUFFIX


def write_begun(begun: Begun, log_end: int) -> OffsetToCommit:
    """Return what to keep; ``log_end`` is that of ``marker_place``."""
    metadata = {
        BEGUN: BEGUN_VERSION,
        "query": begun.query_id,
        "batch": begun.batch_id,
        "at": begun.at_ms,
    }
    return OffsetToCommit(log_end, json.dumps(metadata, ensure_ascii=False))


def read_begun(committed: Committed | None) -> Begun | None:
    """Return what was kept, None for nothing. Raises DeliveryError for what is not ours."""
    if committed is None:
        return None
    try:
        metadata = json.loads(committed.metadata)
        if metadata[BEGUN] == BEGUN_VERSION:
            return Begun(str(metadata["query"]), int(metadata["batch"]), int(metadata["at"]))
    except (ValueError, LookupError, TypeError):
        pass
    raise _not_ours(f"group named like the transactional id and {BEGUN_SUFFIX!r}", committed)


def decide(
    found: Marker | None,
    wanted: Marker,
    rules: Rules = Rules(),  # noqa: B008 - a value
    *,
    begun: Begun | None = None,
    now_ms: int = 0,
    elsewhere: Iterable[Marker] = (),
) -> Step:
    """Return what to do with ``wanted`` when ``found`` was committed last.

    ``begun`` is what was begun last, at a time of the clock that says ``now_ms``, and ``elsewhere``
    are the markers for other topics; they count where no marker is found. Raises DeliveryError
    where neither step would be exactly once; the text says the way out.
    """
    if found is None:
        for other in elsewhere:
            if _may_be_same(other, wanted):
                return _judge_moved(other, wanted, rules)
    if found is None and begun is not None and begun.query_id == wanted.query_id:
        if begun.batch_id == wanted.batch_id:
            return _judge_begun(begun, wanted, rules, now_ms)
        return _judge_later(begun, "was begun", wanted, rules)
    if found is None or found.query_id != wanted.query_id:
        return _judge_unknown(found or begun, wanted, rules)
    if found.topic != wanted.topic:
        message = (
            f"{wanted} goes to topic {wanted.topic or 'of its rows'}, but its transactional id "
            f"belongs to a sink for {found.topic or 'the topic of its rows'}: each sink needs its "
            "own transactional.id"
        )
        raise DeliveryError(message)
    if found.batch_id == wanted.batch_id:
        return _judge_again(found, wanted, rules)
    return _judge_later(found, "was committed", wanted, rules)


def _may_be_same(other: Marker, wanted: Marker) -> bool:
    """Tell whether a marker for another topic may be of a batch that comes again.

    In one run no batch does: there the two are of two sinks.
    """
    is_of_this_run = other.run_id is not None and other.run_id == wanted.run_id
    is_later = other.query_id == wanted.query_id and other.batch_id >= wanted.batch_id
    return is_later and not is_of_this_run


def _judge_moved(other: Marker, wanted: Marker, rules: Rules) -> Step:
    """Return what to do with a batch that was committed already, to another topic."""
    why = (
        f"batch {other.batch_id} was committed for {_topic_text(other)}, and this one goes to "
        f"{_topic_text(wanted)}. Either the sink was given another topic since, or two sinks share "
        "a transactional.id (or a name), where each needs its own"
    )
    return _doubted(wanted, why, rules)


def _topic_text(marker: Marker) -> str:
    return "the topics of its rows" if marker.topic is None else f"topic {marker.topic}"


def _judge_later(last: Marker | Begun, what: str, wanted: Marker, rules: Rules) -> Step:
    """Return what to do when the last batch is another one of the same query."""
    if last.batch_id > wanted.batch_id:
        message = (
            f"{wanted} comes after batch {last.batch_id} {what}: the checkpoint is older "
            "than the topic. Writing it again would double rows, leaving it out might lose some. "
            "To write again from here all the same, give another transactional.id, with "
            "onMissingMarker=write at the first start"
        )
        raise DeliveryError(message)
    if last.batch_id + 1 == wanted.batch_id or rules.are_gaps_legal:
        return Step.WRITE
    why = (
        f"the last one that {what} is batch {last.batch_id}, and those in between were delivered "
        "in another way (at least once, or by another transactional.id)"
    )
    return _doubted(wanted, why, rules)


def _judge_begun(begun: Begun, wanted: Marker, rules: Rules, now_ms: int) -> Step:
    """Return what to do with a batch that was begun, and of which there is no marker."""
    age_ms = abs(now_ms - begun.at_ms)  # a clock that was set back proves nothing
    if age_ms < KEPT_MS:
        return Step.WRITE
    why = (
        f"it was begun {duration_text(age_ms // 60_000 * 60_000)} ago, and the query ended before "
        "Spark noted whether it was done. Its marker, if there was one, has expired since "
        "(brokers keep offsets for offsets.retention.minutes, 7 days)"
    )
    return _doubted(wanted, why, rules)


def _judge_unknown(found: Marker | Begun | None, wanted: Marker, rules: Rules) -> Step:
    """Return what to do with a batch of a query of which nothing is noted."""
    if wanted.batch_id == 0 or (found is None and rules.are_gaps_legal):
        return Step.WRITE
    there = "there is none" if found is None else f"there is {found}"
    why = (
        f"its transactional id has no marker of this query ({there}). Either the query wrote "
        "without delivery=exactly-once until now, or with another transactional.id or topic, or "
        "the topic was made anew"
    )
    return _doubted(wanted, why, rules)


def _doubted(wanted: Marker, why: str, rules: Rules) -> Step:
    """Return what the user said is right. Raises DeliveryError where nobody did."""
    if rules.missing is not None:
        return rules.missing
    message = (
        f"cannot tell whether {wanted} was written before: {why}. Look into the topic, and start "
        "once with the option onMissingMarker=write if the batch was not written, or =skip if it "
        "was"
    )
    raise DeliveryError(message)


def _judge_again(found: Marker, wanted: Marker, rules: Rules) -> Step:
    """Return what to do with a batch whose number is committed already."""
    if found.run_id is not None and found.run_id == wanted.run_id:
        message = (
            f"{wanted} is written a second time in the same run under one transactional id. Two "
            "writes need two ids: give each its own transactional.id, or write both sets of rows "
            "at once (ottla.spark.write_batch takes several topics). If this was another try of "
            "one write whose end was unknown, start the query again: what is there is found"
        )
        raise DeliveryError(message)
    is_same_plan = found.plan is not None and found.plan == wanted.plan
    if found.content is None or wanted.content is None or is_same_plan:
        return Step.SKIP
    if found.content == wanted.content:
        return Step.SKIP
    if rules.changed is not None:
        return rules.changed
    message = (
        f"{wanted} was committed with {found.content.rows} rows (sum {found.content.sum:016x}), "
        f"and now it has {wanted.content.rows} (sum {wanted.content.sum:016x}). Either the "
        "checkpoint is older than the topic and the batch was planned anew, or two writes share a "
        "transactional.id, or the query gives other rows each time (uuid(), rand(), sums of "
        "doubles, the first of a group). Neither writing nor skipping it is surely exactly once: "
        "start once with the option onChangedBatch=skip (what is there stays all there is of it; "
        "right for a query that gives other rows each time) or onChangedBatch=write (its rows are "
        "added)"
    )
    raise DeliveryError(message)
