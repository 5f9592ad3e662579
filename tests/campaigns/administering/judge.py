"""Holds what is read from a broker against what was asked of it and what it promised.

Pure: a history and what was observed in, problems out. For each partition of a living topic:

1.  No inventions: each record that is found was sent to this very topic id, whole, with its key.
2.  Once: no record stands at two offsets. In order: those of an idempotent producer stand as it
    sent them, where it cannot have been forgotten by compaction.
3.  Nothing lost, nothing moved: what was acknowledged, or seen by any consumer, stands at its
    offset, unless it may be gone (4, 5). Records that were seen count although no answer came.
4.  The log start rises only by what was asked: a promised record below it was below the offset of a
    DeleteRecords, or older than a ``retention.ms`` in force with the policy ``delete``, or there
    were ``retention.bytes`` in what came after it.
5.  Above the log start a record is gone only from a log that may have been compacted, and only if
    a newer record of its key is found, or a tombstone of its key at or behind it was so old that
    its horizon has passed, or its transaction was not committed.
6.  No holes in a log that cannot have been compacted: each offset is a record's or a marker's.
7.  High watermark and log start never fall; a confirmed DeleteRecords raised the log start.
8.  Readers of committed records see all of each committed transaction, nothing of an aborted one;
    of one whose end is unknown all or nothing, in all partitions and for ever.
9.  A committed offset is the last one confirmed, or one sent later.
10. What compaction has taken does not come back: readers of committed records see none of a key
    whose newest promised record, a tombstone then, has gone with nothing of the key behind it.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from tests.campaigns.administering.history import (
    BY_NAME,
    MARKER_BYTES,
    Batch,
    Commit,
    Deleted,
    History,
    Outcome,
    PartitionState,
    Topic,
    Verdict,
)
from tests.campaigns.administering.records import Found, RecordId

SLACK_SECONDS = 2.0
"""A deletion that was decided under an old option ends a little later."""
FOREVER = "9223372036854775807"


@dataclass(slots=True)
class Observation:
    """What was read of one partition while nobody wrote."""

    log_start: int
    """Asked for after the reading."""
    high_watermark: int
    records: list[Found]
    """In the order of the answers."""
    controls: list[int]
    committed: set[int] | None
    """The offsets that a reader of committed records got; None: was not looked at."""
    at: float
    """When the reading was over."""
    ahead: float = 0.0
    """How many seconds the broker's clock was ahead at the most: what it compared with its clock
    then was so much older."""
    behind: float = 0.0
    """How many seconds the broker's clock was behind at the most: a tombstone that was met then
    goes so much earlier."""


class PartitionJudge:
    """Judges one observation of one partition."""

    def __init__(
        self, history: History, topic: Topic, partition: int, observed: Observation
    ) -> None:
        self._history = history
        self._topic = topic
        self._partition = partition
        self._observed = observed
        self._state: PartitionState = topic.partitions[partition]
        self._where = f"{topic.name}-{partition} ({topic.topic_id})"
        self._found = {one.offset: one for one in observed.records}
        self._newest: dict[bytes, int] = {}
        self.problems: list[str] = []
        self.checked = 0
        self._policies = history.possible(topic, "cleanup.policy", "delete")
        self._is_compacted = any("compact" in value for value, _, _ in self._policies)

    def judge(self) -> list[str]:
        """Return the problems; take what was seen as promised from now on."""
        self._learn_outcomes()
        self._judge_bounds()
        self._judge_found()
        self._judge_promises()
        if not self._is_compacted:
            self._judge_holes()
        self._judge_committed()
        state, observed = self._state, self._observed
        state.high_watermark = max(state.high_watermark, observed.high_watermark)
        state.log_start = max(state.log_start, observed.log_start)
        for one in observed.records:
            if one.offset >= observed.log_start:
                state.seen[one.offset] = one.record
        return self.problems

    def _say(self, text: str) -> None:
        self.problems.append(f"{self._where}: {text}")

    def _judge_bounds(self) -> None:
        state, observed = self._state, self._observed
        if observed.high_watermark < state.high_watermark:
            self._say(f"high watermark fell: {state.high_watermark} to {observed.high_watermark}")
        if observed.log_start < state.log_start:
            self._say(f"log start fell: {state.log_start} to {observed.log_start}")
        if observed.log_start > observed.high_watermark:
            self._say(f"log start {observed.log_start} > end {observed.high_watermark}")
        for one in self._asked_deletions:
            if self._topic.is_meant(one) and observed.log_start < one.offset:
                self._say(f"deleted below {one.offset}, log start is {observed.log_start}")
        for batch in state.batches:
            end = batch.base_offset + len(batch.ids)
            if batch.base_offset >= 0 and end > observed.high_watermark:
                self._say(f"acknowledged to {end}, high watermark is {observed.high_watermark}")

    def _judge_found(self) -> None:
        before = -1
        places: dict[RecordId, int] = {}
        latest: dict[int, RecordId] = {}
        for one in self._observed.records:
            if one.offset <= before:
                self._say(f"offset {one.offset} follows {before}")
            before = one.offset
            if one.record in places:
                self._say(f"doubled: {one.record} at {places[one.record]} and {one.offset}")
            places[one.record] = one.offset
            batch = self._history.sent.get(one.record)
            if one.topic_id not in (self._topic.topic_id, BY_NAME):
                self._say(f"{one.record} at {one.offset} is of the dead topic {one.topic_id}")
            elif batch is None or (batch.name, batch.partition) != (
                self._topic.name,
                self._partition,
            ):
                self._say(f"invented: {one.record} at {one.offset} was never sent here")
            elif not one.is_whole or one.is_tombstone != batch.tombstones[_at(batch, one.record)]:
                self._say(f"altered: {one.record} at {one.offset}")
            elif batch.call.verdict is Verdict.FAIL:
                self._say(f"refused, and yet there: {one.record} at {one.offset}")
            elif batch.is_sequenced and not self._is_compacted:
                writer = one.record[0]
                if one.record < latest.setdefault(writer, one.record):
                    self._say(
                        f"out of order: {one.record} at {one.offset} follows {latest[writer]}"
                    )
                latest[writer] = one.record
            if one.key is not None and self._counts(batch):
                self._newest[one.key] = one.offset

    def _counts(self, batch: Batch | None) -> bool:
        """Tell whether compaction counts it among the records of its key: not if it was aborted.

        Of one whose end is unknown it may, unless a reader of committed records has looked.
        """
        if batch is None or batch.transaction is None:
            return True
        outcome = batch.transaction.outcome
        if outcome is Outcome.UNKNOWN:
            return self._observed.committed is None
        return outcome is Outcome.COMMITTED

    # -- what was asked -----------------------------------------------------------------------

    @cached_property
    def _asked_deletions(self) -> list[Deleted]:
        return self._history.asked_deletions(self._topic, self._partition)

    @cached_property
    def _retention_ms(self) -> list[tuple[str, float, float]]:
        return self._history.possible(self._topic, "retention.ms", FOREVER)

    @cached_property
    def _is_stamped_by_broker(self) -> bool:
        values = self._history.possible(self._topic, "message.timestamp.type", "CreateTime")
        return any(value == "LogAppendTime" for value, _, _ in values)

    @cached_property
    def _retention_bytes(self) -> list[tuple[str, float, float]]:
        return self._history.possible(self._topic, "retention.bytes", "-1")

    @cached_property
    def _old_tombstones(self) -> dict[bytes, list[int]]:
        """By key, the offsets (-1: not told) of tombstones that may be gone themselves."""
        kept = self._history.possible(self._topic, "delete.retention.ms", "86400000")
        kept_ms = min(int(value) for value, _, _ in kept)
        observed = self._observed
        limit = observed.at + observed.ahead + observed.behind - kept_ms / 1000
        found: dict[bytes, list[int]] = {}
        for one in self._state.batches:
            if one.call.sent >= limit:
                continue
            for at, is_tombstone in enumerate(one.tombstones):
                if is_tombstone:
                    offset = -1 if one.base_offset < 0 else one.base_offset + at
                    found.setdefault(one.keys[at], []).append(offset)
        return found

    # -- what may be gone ---------------------------------------------------------------------

    def _judge_promises(self) -> None:
        promised: dict[int, RecordId] = {}
        for batch in self._state.batches:
            if batch.base_offset >= 0 and batch.call.is_ok:
                for delta, record in enumerate(batch.ids):
                    promised[batch.base_offset + delta] = record
            elif batch.call.is_ok and not self._is_compacted and not self._observed.log_start:
                places = {one.record for one in self._observed.records}
                if not places.issuperset(batch.ids):
                    self._say(f"lost: {batch.ids}, acknowledged as a duplicate")
        for offset, record in self._state.seen.items():
            if promised.setdefault(offset, record) != record:
                self._say(f"{promised[offset]} acknowledged at {offset}, {record} was seen there")
        self.checked = len(promised)
        lost = []
        for offset, record in sorted(promised.items()):
            found = self._found.get(offset)
            if found is not None:
                if found.record != record:
                    self._say(f"{record} promised at {offset}, {found.record} is there")
                continue
            batch = self._history.sent.get(record)
            if batch is None:
                continue  # An invention, told when it was found.
            is_below = offset < self._observed.log_start
            if self._may_be_compacted(offset, record, batch):
                continue  # Below the log's start, too: retention took what compaction had left.
            if not is_below:
                lost.append((offset, record, "above the log start"))
            elif not self._may_be_deleted(offset, batch):
                lost.append((offset, record, "below the log start"))
        if lost:
            offset, record, how = lost[0]
            bounds = f"[{self._observed.log_start}, {self._observed.high_watermark})"
            what = f"lost: {len(lost)} promised records {how}, the first {record} at {offset}"
            self._say(f"{what}, the last at {lost[-1][0]}; the log is {bounds}")

    def _may_be_deleted(self, offset: int, batch: Batch) -> bool:
        if any(offset < one.offset for one in self._asked_deletions):
            return True
        for policy, since, until in self._policies:
            if "delete" not in policy:
                continue
            if self._is_too_old(batch, since, until) or self._is_too_far(offset, since, until):
                return True
        return False

    def _is_too_old(self, batch: Batch, since: float, until: float) -> bool:
        for value, begin, end in self._retention_ms:
            last = min(until, end) + SLACK_SECONDS
            if int(value) < 0 or max(since, begin) > last:
                continue
            looked = min(last, self._observed.at) + self._observed.ahead
            if self._is_stamped_by_broker:
                looked += self._observed.behind
            if (batch.timestamp_ms + int(value)) / 1000 < looked:
                return True
        return False

    def _is_too_far(self, offset: int, since: float, until: float) -> bool:
        for value, begin, end in self._retention_bytes:
            if int(value) < 0 or max(since, begin) > min(until, end) + SLACK_SECONDS:
                continue
            if self._bytes_behind(offset) >= int(value):
                return True
        return False

    def _bytes_behind(self, offset: int) -> int:
        """Return how many bytes there may be behind this offset, at the most."""
        history = self._history
        others = MARKER_BYTES * history.transaction_count + history.bytes_by_name[self._topic.name]
        return others + sum(
            batch.size_bytes
            for batch in self._state.batches
            if batch.base_offset < 0 or batch.base_offset >= offset
        )

    def _is_too_young(self, batch: Batch) -> bool:
        """Tell whether ``min.compaction.lag.ms`` keeps compaction from its segment."""
        lags = self._history.possible(self._topic, "min.compaction.lag.ms", "0")
        lag_ms = min(int(value) for value, _, _ in lags)
        observed = self._observed
        looked = observed.at + observed.ahead + observed.behind
        return lag_ms > 0 and (batch.timestamp_ms + lag_ms) / 1000 > looked

    def _may_be_compacted(self, offset: int, record: RecordId, batch: Batch) -> bool:
        if not self._is_compacted or self._is_too_young(batch):
            return False
        if batch.transaction is not None and batch.transaction.outcome is not Outcome.COMMITTED:
            return True
        key = batch.keys[_at(batch, record)]
        if self._newest.get(key, -1) > offset:
            return True
        return any(at < 0 or at >= offset for at in self._old_tombstones.get(key, ()))

    def returned(self) -> dict[int, int]:
        """Return records that should have gone before a newer one of their key did.

        From the offset of each to that of the newer one, which was promised and is not found. One
        reading is no proof: compaction may have gone on amid it. Look for them once more.
        """
        newest: dict[bytes, int] = {}
        for batch in self._state.batches:
            transaction = batch.transaction
            is_committed = transaction is None or transaction.outcome is Outcome.COMMITTED
            if batch.base_offset < 0 or not batch.call.is_ok or not is_committed:
                continue
            for at, key in enumerate(batch.keys):
                if key is not None:
                    newest[key] = max(newest.get(key, -1), batch.base_offset + at)
        observed = self._observed
        visible = [one for one in observed.records if one.offset in (observed.committed or ())]
        last = {one.key: one.offset for one in visible}
        return {
            one.offset: newest[one.key]
            for one in visible
            if one.key is not None
            and one.offset >= observed.log_start
            and last[one.key] < newest.get(one.key, -1)
        }

    def _judge_holes(self) -> None:
        observed = self._observed
        there = self._found.keys() | set(observed.controls)
        holes = [at for at in range(observed.log_start, observed.high_watermark) if at not in there]
        if holes:
            self._say(f"{len(holes)} holes from offset {holes[0]} to {holes[-1]}")

    # -- transactions -------------------------------------------------------------------------

    def _learn_outcomes(self) -> None:
        """Take the first record of a transaction of unknown end for its word."""
        if self._observed.committed is None:
            return
        for one in self._observed.records:
            batch = self._history.sent.get(one.record)
            transaction = None if batch is None else batch.transaction
            if transaction is not None and transaction.outcome is Outcome.UNKNOWN:
                is_seen = one.offset in self._observed.committed
                transaction.outcome = Outcome.COMMITTED if is_seen else Outcome.ABORTED

    def _judge_committed(self) -> None:
        committed = self._observed.committed
        if committed is None:
            return
        for one in self._observed.records:
            batch = self._history.sent.get(one.record)
            if batch is None or one.offset < self._observed.log_start:
                continue
            transaction = batch.transaction
            is_wanted = transaction is None or transaction.outcome is Outcome.COMMITTED
            if is_wanted and one.offset not in committed:
                how = "not transactional" if transaction is None else f"of {transaction.name}"
                self._say(f"{one.record} at {one.offset}, {how}, is hidden from committed readers")
            elif not is_wanted and one.offset in committed:
                name = "" if transaction is None else transaction.name
                self._say(f"{one.record} at {one.offset} of {name}, not committed, is visible")
        extra = committed - self._found.keys()
        if extra:
            self._say(f"committed readers alone see offsets {sorted(extra)[:5]}")


def _at(batch: Batch, record: RecordId) -> int:
    return record[1] - batch.ids[0][1]


def judge_commits(where: str, commits: Iterable[Commit], found: int) -> list[str]:
    """Judge the committed offset of one group for one partition; -1: there is none."""
    commits = list(commits)
    confirmed = [one for one in commits if one.call.is_ok]
    last = max((one.call.sent for one in confirmed), default=-math.inf)
    allowed = {
        one.offset
        for one in commits
        if one.call.sent >= last or (one.call.verdict is Verdict.UNKNOWN and one.call.over > last)
    }
    if not confirmed:
        allowed.add(-1)
    if found in allowed:
        return []
    return [f"{where}: committed offset is {found}, not one of {sorted(allowed)[-5:]}"]
