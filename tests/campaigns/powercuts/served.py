"""``ottla serve`` as its users run it, cut from outside at a chosen time.

Owns the process and the clock of the cut. The housekeeping runs by its timers, which are short
here; the metadata store, the threads and the loop are where they happen to be.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path

from powercuts.cutting import NEVER, CutKind, CutPlan
from powercuts.node import Cut, NodeFailed
from powercuts.volume import LOGFLUSH, NOLOGFLUSH, cut_power
from tools.ottla_peer import OttlaPeer
from tools.peer import PeerFailed

HOUSEKEEPING = {
    "log.flush.offset.checkpoint.interval.ms": "20",
    "log.retention.check.interval.ms": "30",
    "log.segment.delete.delay.ms": "10",
}


class ServedNode:
    """A CuttableNode; its plans are by time."""

    def __init__(self, data: Path, mount_point: Path, options: Mapping[str, object]) -> None:
        self._peer = OttlaPeer(data, {**options, **HOUSEKEEPING})
        self._peer.log_path = mount_point.parent / "served.log"
        self._mount_point = mount_point
        self._timer: threading.Timer | None = None
        self._is_cut = False
        self.changes = 0
        self.cut_at = ""

    @property
    def bootstrap(self) -> str:
        """Host and port."""
        return self._peer.bootstrap

    def start(self, plan: CutPlan = NEVER) -> None:
        """Start the process; the time of the plan begins with it."""
        self.arm(plan)
        try:
            self._peer.start()
        except (PeerFailed, OSError) as error:
            if not self._is_cut:
                raise NodeFailed(str(error)) from error
            self.await_cut()

    def arm(self, plan: CutPlan) -> None:
        """Cut after the plan's time."""
        if plan.after_us:
            self._timer = threading.Timer(plan.after_us / 1e6, self._cut, (plan.kind,))
            self._timer.start()

    def _cut(self, kind: CutKind) -> None:
        self._is_cut = True
        process = self._peer.process
        if process is None:
            return
        if kind is not CutKind.KILL:
            flag = LOGFLUSH if kind is CutKind.JOURNAL else NOLOGFLUSH
            with contextlib.suppress(ProcessLookupError):
                cut_power(str(self._mount_point), flag, process.pid)
        os.kill(process.pid, signal.SIGKILL)

    def count(self) -> int:
        """Nothing is counted from outside."""
        return 0

    def order(self, text: str) -> str:
        """It looks after itself."""
        return text

    def await_cut(self) -> None:
        """Take note of the cut."""
        if self._timer is None:
            raise NodeFailed(f"died by itself:\n{self._peer.log_text()[-3000:]}")
        self._timer.join()
        self.kill()
        self.cut_at = "time passed"
        raise Cut(self.cut_at)

    def was_cut(self) -> bool:
        """Tell, after a wrong answer, whether it was given while the power went."""
        if self._is_cut:
            self.cut_at = "time passed"
        return self._is_cut

    def stop(self) -> None:
        """SIGTERM."""
        if self._peer.stop() != 0:
            raise NodeFailed(f"stop: {self._peer.log_text()[-3000:]}")

    def kill(self) -> None:
        """End the process, and the timer with it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
        self._peer.kill9()
