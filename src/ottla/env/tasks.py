"""Tasks of the broker: kept as long as they run, and none ends unheard.

A task that nobody awaits dies silently: its error is told, if at all, when it is freed. So whoever
begins one here says who hears of its end; a test holds that the broker's rooms begin none
elsewhere. What has to go on as long as the broker does either heals itself, or ends the broker with
the reason: that is for whoever hears of it. Source: asyncio's documentation of ``create_task``.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

Value = TypeVar("Value")


def begin_task(
    work: Coroutine[Any, Any, Value], *, name: str, ended: Callable[[asyncio.Task[Value]], None]
) -> asyncio.Task[Value]:
    """Run ``work`` on the running loop; ``ended`` is told of its end, whatever that is."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    _running.add(task)  # The loop itself keeps tasks by weak reference only.

    def done(finished: asyncio.Task[Value]) -> None:
        _running.discard(finished)
        ended(finished)

    task.add_done_callback(done)
    return task


_running: set[asyncio.Task[Any]] = set()


def forget_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Keep ``tasks`` no longer: those of a process that a simulation has ended."""
    _running.difference_update(tasks)
