"""What clients were promised by several nodes, and what they have seen; judged as it comes.

A record is known by its writer and number. What a promise says of it is an offset; what a reader
has seen at an offset stays there for ever, for only what is committed is shown.
"""

from collections import Counter
from enum import Enum

from tests.campaigns.administering.records import key_of

WRITTEN_OFF = {2, 10, 18, 42, 45, 47, 48, 87, 90}
"""Codes after which nothing was written."""


class Fate(Enum):
    """Of a transaction."""

    OPEN = "open"
    UNKNOWN = "unknown"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Transaction:
    """Its records are seen by committed readers all together, or not at all."""

    def __init__(self, name):
        self.name = name
        self.fate = Fate.OPEN
        self.records = []


class Sent:
    """A batch. ``timestamp_ms``: of all its records."""

    def __init__(self, place, ids, transaction, *, is_sequenced, timestamp_ms=0):
        self.place = place
        self.ids = ids
        self.transaction = transaction
        self.is_sequenced = is_sequenced
        self.timestamp_ms = timestamp_ms
        self.base_offset = None
        """None: not promised; -1: promised, at an offset that was not told."""
        self.is_refused = False


class Place:
    """One partition, as clients know it."""

    def __init__(self):
        self.seen = {}
        """Records by offset."""
        self.latest = 0
        """The highest end that was told."""
        self.asked_start = 0
        """The highest offset below which somebody wanted records deleted."""
        self.retained_bytes = None
        """How much retention leaves of the log at the least; None: it does not go by size."""
        self.retained_ms = None
        """How long retention leaves a record by a clock that is right; None: it does not go by
        time."""
        self.is_compacted = False
        self.newest = {}
        """Of a compacted log: the highest offset of a committed record, by key."""
        self.start = 0
        """Where the log begins, as the judge has seen it last."""

    def may_begin_at(self, offset, left_bytes, newest_ms):
        """Tell whether the log may begin at ``offset`` when so much of it is left.

        ``newest_ms``: the age of the newest record that went, by a clock that is right.
        """
        return (
            offset <= self.asked_start
            or (self.retained_bytes is not None and left_bytes >= self.retained_bytes)
            or (self.retained_ms is not None and newest_ms >= self.retained_ms)
        )

    def may_be_gone(self, offset):
        """Tell whether a reader may find that an offset it had read to is below the log's start."""
        return (
            offset < self.asked_start
            or self.retained_bytes is not None
            or self.retained_ms is not None
        )

    def is_superseded(self, record, offset):
        """Tell whether a later record has the key of this one; ``offset`` -1: it is not known."""
        return self.newest.get(key_of(*record), -1) > offset


class Ledger:
    """All promises of a world. ``problem(text)`` is told of each that is broken."""

    def __init__(self, problem):
        self._problem = problem
        self.batches = []
        self.of_record = {}
        self.places = {}
        self.counts = Counter()
        self.commits = {}
        """By group, topic and partition: the last committed offset that was promised, and the
        highest that was asked for."""
        self.owners = {}
        """Of producer ids: whose they are."""
        self.epochs = {}
        """By transactional id: the newest producer id and epoch that anybody was given."""
        self.transformed = {}
        """By group, topic and partition: the transaction of each offset."""
        self.generations = {}
        """Of classic groups: the highest one for which an assignment was handed out."""

    def place(self, where):
        """Return what is known of a topic's name and a partition."""
        if where not in self.places:
            self.places[where] = Place()
        return self.places[where]

    def given(self, producer_id, owner, who):
        """Take note of a producer id that somebody was given: nobody else is, ever."""
        first = self.owners.setdefault(producer_id, owner)
        if first != owner:
            self._problem(f"{who}: producer id {producer_id} is given to {owner}, and to {first}")

    def assigned(self, group, generation, before, who):
        """Take note of an assignment: that it was handed out is durable, whoever coordinates.

        ``before``: the highest generation that was known when this one was asked for. A group
        that has committed offsets is not forgotten.
        """
        is_kept = any(key[0] == group and told >= 0 for key, (told, _) in self.commits.items())
        if is_kept and generation < before:
            self._problem(f"{who}: generation {generation} of {group} follows {before}")
        self.generations[group] = max(generation, self.generations.get(group, 0))

    def send(self, sent):
        self.batches.append(sent)
        for one in sent.ids:
            self.of_record[one] = sent
        if sent.transaction is not None:
            sent.transaction.records += sent.ids

    def answered(self, sent, code, base_offset, *, is_promise=True):
        """Take note of an answer."""
        self.counts[f"Produce {code}"] += 1
        if code in WRITTEN_OFF:
            # Of an earlier attempt nobody knows.
            sent.is_refused = not sent.is_sequenced
        elif code in (0, 46) and is_promise:
            base_offset = base_offset if code == 0 else -1
            before = sent.base_offset
            is_moved = before not in (None, -1) and base_offset not in (-1, before)
            # Of records that were deleted a replica made since does not know who wrote them.
            is_deleted = is_moved and self.place(sent.place).may_be_gone(before)
            if is_moved and not is_deleted:
                self._problem(
                    f"{sent.place}: {sent.ids[0]} was promised at {before}, and at {base_offset}"
                )
            if before in (None, -1) or is_deleted:
                sent.base_offset = base_offset

    def saw(self, where, found, who):
        """Take note of a record that a reader was given."""
        seen = self.place(where).seen
        before = seen.setdefault(found.offset, found.record)
        if before != found.record:
            self._problem(
                f"{who}: {where}: {found.record} at {found.offset}, where {before} was seen"
            )
        if not found.is_whole:
            self._problem(f"{who}: {where}: {found.record} at {found.offset} is altered")
        sent = self.of_record.get(found.record)
        if sent is None or sent.place != where:
            self._problem(f"{who}: {where}: {found.record} at {found.offset} was not sent there")

    def saw_committed(self, where, found, who):
        """Take note of a record that a reader of committed ones was given."""
        sent = self.of_record.get(found.record)
        transaction = None if sent is None else sent.transaction
        if transaction is None:
            return
        if transaction.fate in (Fate.OPEN, Fate.ABORTED):
            how = transaction.fate.value
            text = f"{who}: {where}: {found.record} of {transaction.name}, {how}, is visible"
            self._problem(text)
        elif transaction.fate is Fate.UNKNOWN:
            transaction.fate = Fate.COMMITTED

    def told_latest(self, where, offset, before, who):
        """Take note of an answer of ListOffsets: such an end never falls (KIP-207).

        ``before``: the highest end that anybody had been told when this was asked. An answer that
        was long on its way may come after a later one.
        """
        place = self.place(where)
        if offset < before:
            self._problem(f"{who}: {where}: the end was {before}, and is {offset}")
        place.latest = max(place.latest, offset)

    def began(self, where, start, left_bytes, now_ms):
        """Take note of where a log begins, before its records are judged."""
        place = self.place(where)
        if start > place.start:
            gone = [
                self.of_record[record].timestamp_ms
                for offset, record in place.seen.items()
                if max(place.start, place.asked_start) <= offset < start
            ]
            newest_ms = now_ms - max(gone, default=0)
            if not place.may_begin_at(start, left_bytes, newest_ms):
                self._problem(
                    f"{where}: the log start is {start}, asked was {place.asked_start}, "
                    f"{left_bytes} bytes are left, what went was {newest_ms} ms old"
                )
        place.start = start

    def judge(self, where, found, committed):
        """Judge all that there is now: records in their order, and those of committed readers.

        What is below the log's start is gone, which ``began`` has judged. Of a compacted log each
        replica is judged, for each has other records.
        """
        by_record, last = {}, {}
        start = self.place(where).start
        if self.place(where).is_compacted:
            self._note_newest(where, committed)
        at = {one.offset: one.record for one in found}
        for one in found:
            self.saw(where, one, "the judge")
            if one.record in by_record:
                other = by_record[one.record]
                self._problem(f"{where}: {one.record} is doubled: at {other}, {one.offset}")
            by_record[one.record] = one.offset
            sent = self.of_record.get(one.record)
            if sent is not None and sent.is_sequenced:
                writer, number = one.record
                if number <= last.get(writer, -1):
                    self._problem(f"{where}: {one.record} is out of order: after {last[writer]}")
                last[writer] = number
        for offset, record in self.place(where).seen.items():
            if offset < start or at.get(offset) == record:
                continue
            if offset not in at and self._may_be_compacted(where, record, offset):
                self.counts["compacted"] += 1
            else:
                self._problem(f"{where}: {record} was seen at {offset}: lost, {at.get(offset)}")
        for sent in self.batches:
            if sent.place == where:
                self._judge_sent(sent, by_record)
        for one in committed:
            self.saw_committed(where, one, "the judge")

    def _note_newest(self, where, committed):
        newest = self.place(where).newest
        for one in committed:
            key = key_of(*one.record)
            newest[key] = max(newest.get(key, -1), one.offset)

    def _may_be_compacted(self, where, record, offset):
        """Tell whether compaction may have taken a record that was at ``offset``."""
        place = self.place(where)
        if not place.is_compacted:
            return False
        transaction = self.of_record[record].transaction
        is_aborted = transaction is not None and transaction.fate is not Fate.COMMITTED
        return is_aborted or place.is_superseded(record, offset)

    def _judge_sent(self, sent, by_record):
        for number, one in enumerate(sent.ids):
            offset = by_record.get(one)
            if sent.base_offset is not None:
                if offset is None and self._may_be_gone(sent, number):
                    continue
                if offset is None:
                    self._problem(f"{sent.place}: {one} lost: promised at {sent.base_offset}")
                elif sent.base_offset >= 0 and offset != sent.base_offset + number:
                    wanted = sent.base_offset + number
                    self._problem(f"{sent.place}: {one} promised at {wanted}, is at {offset}")
            if sent.is_refused and offset is not None:
                self._problem(f"{sent.place}: {one} was refused, and yet is at {offset}")

    def _may_be_gone(self, sent, number):
        """Tell whether a record may be below its log's start, or taken by compaction."""
        start = self.place(sent.place).start
        is_told = sent.base_offset is not None and sent.base_offset >= 0
        offset = sent.base_offset + number if is_told else -1
        return (start > 0 and offset < start) or self._may_be_compacted(
            sent.place, sent.ids[number], offset
        )

    def judge_transactions(self, visible):
        """``visible``: the records that readers of committed ones are given, of all partitions."""
        done = set()
        for sent in self.batches:
            transaction = sent.transaction
            if transaction is None or id(transaction) in done:
                continue
            done.add(id(transaction))
            gone = [one for one in transaction.records if self._is_gone(one)]
            if transaction.fate is Fate.COMMITTED:
                hidden = [
                    one for one in transaction.records if one not in visible and one not in gone
                ]
                if hidden:
                    name = transaction.name
                    self._problem(f"{hidden} of {name}, which is committed, is hidden")
            elif transaction.fate is Fate.UNKNOWN and not gone:
                transaction.fate = Fate.ABORTED

    def _is_gone(self, record):
        """Tell whether nobody can know of a record any more whether it is visible."""
        sent = self.of_record[record]
        return self._may_be_gone(sent, sent.ids.index(record))
