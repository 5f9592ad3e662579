"""Looks at what the members of a group said, and tells what no broker may have let happen.

Knows neither processes nor sockets: events in, problems and figures out. What events there are is
to be seen in ``members.py``; the campaign adds ``killed`` for each member of a process that it
killed. All times are of one clock.

A *hold* is one member's ownership of one partition. It begins when the assigned-callback begins,
and ends when the revoked-callback ends, the lost-callback is called, the member has stopped reading
in order to leave, or its process is dead. The rules:

1. Once per generation (classic groups): no two members are given a partition in one generation.
2. No overlap: while a member holds a partition nobody else begins to hold it, unless the first is
   no member any more and does not know it yet: a *zombie*. That must show: it is told that its
   partitions are lost, or a commit of its is refused with a code that only strangers get, or it
   comes back under another member id, or it dies before it hears of it. And no commit of its for
   that partition, sent after the other began to hold it, may succeed.
   In a KIP-848 group a member may also be late: the heartbeat that says what it owns was under way
   when it began to own the partition, so the coordinator, told that it does not, is right to give
   it to somebody else, and the member gives it up as soon as it hears. Then the coordinator's log
   is the judge (``owners_in_log.py``), and the word about commits holds all the same.
3. Nothing lost: what is read first in a hold is not past what all have read so far; then offsets
   follow each other; each record says at which offset it should be.
4. Commits last: what is read first in a hold is not below an offset whose commit was answered with
   success before the hold began, and is an offset that somebody asked to commit, or 0. So records
   are read twice only where a member ended between reading and the answer to its commit.
5. Generations (member epochs) never fall for a member id.
6. A commit that succeeds is not below one that had succeeded before it was sent.
7. A member reads, and commits, only what it holds.

Not all of them are the broker's business alone; so the campaign runs against Kafka, too, and what
shows there as well is the clients'.
"""

import dataclasses
import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

Event = dict[str, Any]


@dataclasses.dataclass(slots=True)
class Hold:
    """One member's ownership of one partition; times in nanoseconds."""

    member: int
    member_id: str
    generation: int
    partition: int
    begin: int
    end: float = math.inf
    how: str = "open"
    next: int | None = None
    """What it must read next; None before its first record."""

    def __str__(self) -> str:
        seconds = f"{self.begin / 1e9:.3f}-{self.end / 1e9:.3f}"
        return f"{self.member} ({self.member_id}, {self.generation}, {seconds} {self.how})"


@dataclasses.dataclass(slots=True)
class Commit:
    """One partition of one commit."""

    member: int
    partition: int
    offset: int
    sent: int
    state: str = "in doubt"
    """Or "good", or "fenced"."""


class Judge:
    """Takes the events of one group once."""

    def __init__(self, *, is_classic: bool) -> None:
        self.is_classic = is_classic
        self.problems: list[str] = []
        self.counts: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.generation = 0
        """The highest seen."""
        self.read_to: defaultdict[int, int] = defaultdict(int)
        """Of each partition, everything below was read by somebody."""
        self._holds: defaultdict[int, list[Hold]] = defaultdict(list)
        self._held: dict[tuple[int, int], Hold] = {}
        self._commits: defaultdict[int, list[Commit]] = defaultdict(list)
        self._sending: dict[int, list[Commit]] = {}
        self._good: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        """Of each partition, when a commit was answered, and the highest offset until then."""
        self._generations: dict[str, int] = {}
        self._owners: dict[tuple[int, int], str] = {}
        self._ids: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
        self._fenced: defaultdict[int, list[int]] = defaultdict(list)
        self._leaving: dict[int, int] = {}

    def take(self, events: Iterable[Event]) -> None:
        """Take all events there are, in any order; ``problems`` is complete then."""
        for event in sorted(events, key=lambda each: each["at"]):
            self.counts[event["what"]] += 1
            getattr(self, "on_" + event["what"])(event)
        for holds in self._holds.values():
            self._compare(holds)

    def owners(self) -> dict[int, list[int]]:
        """Return the members that hold each partition at the end."""
        found: dict[int, list[int]] = {}
        for member, number in self._held:
            found.setdefault(number, []).append(member)
        return found

    # ---- events ---------------------------------------------------------------------------------

    def on_started(self, event: Event) -> None:
        pass

    def on_failed(self, event: Event) -> None:
        self.errors[event["error"][:90]] += 1

    def on_assigned(self, event: Event) -> None:
        member, member_id, generation = event["member"], event["id"], event["generation"]
        before = self._generations.get(member_id, -1)
        if generation < before:
            self.problems.append(f"{member_id} went back from {before} to {generation}")
        self._generations[member_id] = generation
        self.generation = max(self.generation, generation)
        self._ids[member].append((event["at"], member_id))
        for number in event["partitions"]:
            if self.is_classic:
                owner = self._owners.setdefault((generation, number), member_id)
                if owner != member_id:
                    text = f"{number} in generation {generation}: {owner} and {member_id}"
                    self.problems.append(text)
            self._end(member, number, "replaced", event["at"])
            hold = Hold(member, member_id, generation, number, event["at"])
            self._held[member, number] = hold
            self._holds[number].append(hold)

    def on_revoked(self, event: Event) -> None:
        for number in event["partitions"]:
            self._end(event["member"], number, event["what"], event["at"])

    def on_lost(self, event: Event) -> None:
        self.on_revoked(event)
        self.counts["partitions lost"] += len(event["partitions"])

    def on_leaving(self, event: Event) -> None:
        self._leaving[event["member"]] = event["at"]

    def on_left(self, event: Event) -> None:
        self._end_all(event["member"], "left", self._leaving.pop(event["member"], event["at"]))

    def on_killed(self, event: Event) -> None:
        self._end_all(event["member"], "killed", event["at"])
        self._sending.pop(event["member"], None)

    def _end_all(self, member: int, how: str, at: int) -> None:
        for number in [number for owner, number in self._held if owner == member]:
            self._end(member, number, how, at)

    def _end(self, member: int, number: int, how: str, at: int) -> None:
        hold = self._held.pop((member, number), None)
        if hold is not None:
            hold.end, hold.how = at, how
            self.counts[f"ended: {how}"] += 1

    def on_read(self, event: Event) -> None:
        if event["wrong"]:
            self.problems.append(f"{event['wrong']} records are not at their offsets: {event}")
        for number, start, end in event["ranges"]:
            self.counts["records"] += end - start
            known = self.read_to[number]
            self.counts["records twice"] += max(0, min(end, known) - start)
            if start > known:
                self.problems.append(f"{number}: {known} to {start} skipped: {event}")
            self.read_to[number] = max(known, end)
            hold = self._held.get((event["member"], number))
            if hold is None:
                self.problems.append(f"{event['member']} reads {number} without owning it: {event}")
            elif hold.next is None:
                self._check_begin(hold, start)
                hold.next = end
            else:
                if start != hold.next:
                    self.problems.append(f"{number}: {hold.next} expected: {event}")
                hold.next = end

    def _check_begin(self, hold: Hold, start: int) -> None:
        """Hold what is read first against what was committed (rule 4)."""
        number = hold.partition
        committed = self._good_before(number, hold.begin)
        if start < committed:
            text = f"{number}: {committed} was committed, {hold} begins at {start}"
            self.problems.append(text)
        # A refusal may be of the second try of a commit whose first was taken, but not answered.
        asked = {
            each.offset
            for each in self._commits[number]
            if each.state != "fenced" or each.sent < hold.begin
        }
        if start and start not in asked:
            self.problems.append(f"{number}: {hold} begins at {start}, which nobody committed")

    def on_committing(self, event: Event) -> None:
        sent = [
            Commit(event["member"], number, offset, event["at"])
            for number, offset in event["offsets"]
        ]
        for each in sent:
            self._commits[each.partition].append(each)
            if (each.member, each.partition) not in self._held:
                self.problems.append(f"{each} of what is not owned")
        self._sending[event["member"]] = sent

    def on_committed(self, event: Event) -> None:
        for each in self._sending.pop(event["member"]):
            each.state = "good"
            before = self._good_before(each.partition, each.sent)
            if each.offset < before:
                self.problems.append(f"{each} after {before}")
            good = self._good[each.partition]
            highest = max(each.offset, good[-1][1] if good else 0)
            good.append((event["at"], highest))

    def on_refused(self, event: Event) -> None:
        self.errors[event["error"][:90]] += 1
        sent = self._sending.pop(event["member"])
        if event["fenced"]:
            self._fenced[event["member"]].append(event["at"])
            for each in sent:
                each.state = "fenced"

    def _good_before(self, number: int, at: float) -> int:
        """Return the highest offset whose commit had been answered with success before ``at``."""
        good = self._good[number]
        index = bisect_left(good, (at, -1))
        return good[index - 1][1] if index else 0

    # ---- holds ----------------------------------------------------------------------------------

    def _compare(self, holds: list[Hold]) -> None:
        """Find the holds of one partition that overlap (rule 2)."""
        current: list[Hold] = []
        for later in sorted(holds, key=lambda each: each.begin):
            current = [each for each in current if each.end > later.begin]
            for earlier in current:
                if earlier.member != later.member:
                    self._judge_overlap(earlier, later)
            current.append(later)

    def _judge_overlap(self, earlier: Hold, later: Hold) -> None:
        self.counts["overlaps with zombies"] += 1
        if not self._is_zombie(earlier, later):
            self.problems.append(f"{later.partition}: {later} while {earlier}")
        for each in self._commits[later.partition]:
            is_late = later.begin < each.sent < earlier.end
            if each.member == earlier.member and is_late and each.state == "good":
                self.problems.append(f"{each} of a zombie, {earlier}, was taken; {later}")

    def _is_zombie(self, hold: Hold, later: Hold) -> bool:
        """Tell whether the holder was found to be no member, at some time after ``later`` began."""
        if hold.how in ("lost", "killed"):
            self.counts[f"zombies: {hold.how}"] += 1
            return True
        refusals = self._fenced[hold.member]
        if any(hold.begin < at <= hold.end for at in refusals):
            self.counts["zombies: refused"] += 1
            return True
        coming = [each for at, each in self._ids[hold.member] if at > hold.begin]
        if coming and coming[0] != hold.member_id:
            self.counts["zombies: new id"] += 1
            return True
        if not self.is_classic and hold.how == "revoked":
            self.counts["overlaps by heartbeats under way"] += 1
            return True
        return False
