"""Whether retention does its work at all: what is too old goes, in time.

That nothing goes too early the judge of the campaign sees. Only what surely fills a segment is
waited for: where one ends no client knows.
"""

from tests.simulation.clients.readers import EARLIEST

SLACK_SECONDS = 30.0
"""From when segments are due until they are gone, besides two intervals between looks."""
DOUBT_SECONDS = 10.0
"""Between a record's sending and the time that its segment goes by, clocks aside."""
UNKNOWN_BYTES = str(1 << 30)


def overdue_of(history, topic, partition, records, allowed, skew_seconds, now):
    """Return offset and size of the records that are too old, if there are enough of them, or [].

    ``allowed``: by option, the values that the topic may have now.
    """
    if not all(
        policy is None or "delete" in policy for policy in allowed.get("cleanup.policy", ())
    ):
        return []
    (value, *others) = allowed.get("retention.ms", {None})
    if others or value is None or int(value) < 0:
        return []
    sizes = history.possible(topic, "internal.segment.bytes", UNKNOWN_BYTES)
    limit = now - int(value) / 1000 - skew_seconds - DOUBT_SECONDS
    overdue, seen, there = [], set(), {one.record for one in records}
    for one in records:
        batch = history.sent.get(one.record)
        if batch is None or batch.timestamp_ms / 1000 >= limit:
            break  # A segment stays as long as one record in it is young.
        if batch.ids[0] not in seen and there.issuperset(batch.ids):  # Else it was compacted.
            seen.add(batch.ids[0])
            overdue.append((one.offset, batch.size_bytes))
    largest = max((size for _, size in overdue), default=0)
    needed = max(int(size) for size, _, _ in sizes) + largest
    return overdue if sum(size for _, size in overdue) > needed else []


class Upkeep:
    """Waits for retention, as the observer of a world."""

    def __init__(self, observer):
        self._observer = observer

    async def look(self, topic, partition, records):
        """Wait until the first segment of what is overdue has gone. Raises NotServed."""
        observer, world = self._observer, self._observer.world
        now, ahead, behind = world.nemesis.clock_bounds
        allowed = observer.allowed_configs(topic)
        overdue = overdue_of(world.history, topic, partition, records, allowed, ahead + behind, now)
        if not overdue:
            return
        world.history.count("logs whose retention was waited for")

        async def missing():
            start = await observer.offset(topic, partition, EARLIEST)
            if start > overdue[0][0]:
                return ""
            where = f"{topic.name}-{partition} ({topic.topic_id})"
            size = sum(size for _, size in overdue)
            return f"retention takes nothing of {where}, {size} bytes are overdue at {start}"

        interval_ms = int(world.mix.broker_options["log.retention.check.interval.ms"])
        await observer.until(2 * interval_ms / 1000 + SLACK_SECONDS, missing)
