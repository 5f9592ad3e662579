"""Which full segments of a log keep their file open and their indexes in memory: the few read last.

A log may have thousands of segments, and a process only so many files; the indexes of a segment of
1 GiB take 5 MiB. The active segment is not counted. Below log.log. Closing is safe at any time: who
holds a Region keeps its file open.
"""

from ottla.log.segment.segment import Segment

FULL_SEGMENTS_OPEN_MAX = 4
"""As many readers at different old places of one partition go on without opening files anew."""


class FullFiles:
    """The full segments of one log that are open because somebody read them."""

    __slots__ = ("_segments",)

    def __init__(self) -> None:
        self._segments: list[Segment] = []

    def note(self, segment: Segment) -> None:
        """Tell that ``segment``, a full one, was read; the one read longest ago may be closed."""
        segments = self._segments
        if segments and segments[-1] is segment:
            return
        if segment in segments:
            segments.remove(segment)
        segments.append(segment)
        if len(segments) > FULL_SEGMENTS_OPEN_MAX:
            segments.pop(0).rest()

    def forget(self, segment: Segment) -> None:
        """Keep ``segment`` no longer: it is not the log's any more. Harmless if it is not kept."""
        if segment in self._segments:
            self._segments.remove(segment)
