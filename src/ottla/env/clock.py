"""The clock port: wall time, monotonic time and timers.

Wall time stamps records; monotonic time measures waits. Code below the broker never asks the
operating system: a test moves a ManualClock instead of sleeping.
"""

from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A callback that is due later, once."""

    def cancel(self) -> None:
        """Make sure the callback does not run. Harmless when it ran already."""


class Clock(Protocol):
    """What the rest of Ottla may know about time."""

    def wall_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC. May jump in both directions."""

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start. Never goes back."""

    def call_later(self, delay_seconds: float, callback: Callable[[], None]) -> Timer:
        """Run ``callback`` on the loop's thread once ``delay_seconds`` (>= 0) have passed."""
