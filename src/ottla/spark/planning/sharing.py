"""How many offsets of a stream's micro-batch may share a task, learned from how long batches take.

Pure; the clock's readings are handed in. A task costs Spark the same for one record as for a
thousand, so small ranges had better share one. But what a query does with a row may take long (it
asks a web service, say), and tasks do it side by side. The source cannot see that; it sees when a
micro-batch is planned and when Spark asks for the next one. So it begins with a task for each
range, lets more and more offsets share one as long as micro-batches are quick, and gives each
range its task again, for a while, when one was not. A query that is slow by the row thus has one
micro-batch of a few seconds in a hundred; its throughput does not change, since what waits makes
ranges too large to share. Where the options bound a micro-batch, it does not: ``tracker`` lets
nothing share while something waits.
"""

QUICK_SECONDS = 2.0
"""From a plan to the question for the next micro-batch: the batch, and the wait for its trigger."""
FIRST = 64
MOST = 1_000
"""Offsets. What Spark takes for one more task is worth some thousand records' work by then."""
ALONE_BATCHES = 100
"""Micro-batches in a row that are quick before ranges share tasks again."""


class Sharing:
    """What one query's micro-batches have shown so far."""

    def __init__(self) -> None:
        self._least = 0
        self._planned_at: float | None = None
        """Use: monotonic seconds; None: the last planned micro-batch is known to have ended."""
        self._alone = 0
        """Use: quick micro-batches to come before ranges share tasks."""

    def planned(self, now: float) -> int:
        """Return how many offsets share a task in the micro-batch that is planned; 0: none do.

        One that is planned twice gets the same answer.
        """
        if self._planned_at is None:
            self._planned_at = now
        return self._least

    def ended(self, now: float) -> None:
        """Learn from the micro-batch that was planned last, if any was since this was told."""
        if self._planned_at is None:
            return
        is_quick = now - self._planned_at <= QUICK_SECONDS
        self._planned_at = None
        if not is_quick:
            if self._least:
                self._alone = ALONE_BATCHES
            self._least = 0
        elif self._alone:
            self._alone -= 1
        else:
            self._least = min(max(FIRST, 2 * self._least), MOST)
