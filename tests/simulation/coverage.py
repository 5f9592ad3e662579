"""What a run has visited: which answers, which faults, and which faults amid which states."""

from collections import Counter


class Coverage:
    """Counts. Two runs are added by ``add``."""

    def __init__(self):
        self.counts = Counter()

    def asked(self, request):
        self.counts["asked", request] += 1

    def answered(self, api, code):
        self.counts["answer", api, code] += 1

    def fault(self, name, states):
        """A fault came while the node was in these states."""
        self.counts["fault", name] += 1
        for state in states:
            self.counts["fault amid", name, state] += 1

    def add(self, other):
        self.counts.update(other.counts)

    def report(self):
        """Return lines for people."""
        lines = []
        by_kind = {}
        for (kind, *what), count in sorted(self.counts.items(), key=str):
            by_kind.setdefault(kind, []).append(f"{' '.join(map(str, what))} {count}")
        for kind, entries in by_kind.items():
            lines.append(f"{kind}: {', '.join(entries)}")
        return lines
