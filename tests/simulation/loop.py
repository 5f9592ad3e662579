"""An event loop without a selector: time is a number, and every handle belongs to a life.

A *life* is one run of one process: a node between its start and its end, or the clients, which
never end. Whatever a life schedules carries it, so that a life can be stopped (its handles wait),
go on, and be killed (they never run). Handles run in the order in which asyncio would run them;
chance comes from how long things take, which the ports decide. A turn costs a little time, so that
those who only wait for others to go first do not stop the clock.
"""

import asyncio
import contextvars
from collections import deque
from contextlib import suppress
from heapq import heapify, heappop, heappush

from ottla.env.faulty_disk import DiskKilled

STEP_SECONDS = 5e-6
"""What one callback costs."""
_LIFE = contextvars.ContextVar("life")
"""By it a future that one life resolves wakes another as the other: tasks bring their context."""


class Life:
    """One run of one process."""

    def __init__(self, name):
        self.name = name
        self.is_dead = False
        self.is_paused = False
        self.is_judged = False
        """Of a node: what its turns cost is looked at."""
        self.waiting = []
        """Handles whose time came while it was paused."""
        self.tasks = {}
        """Those that are not done; a dict, for its order."""
        self.context = contextvars.Context()
        """All of it runs in this one."""
        self.context.run(_LIFE.set, self)

    def __repr__(self):
        return f"<{self.name}>"


class Handle:
    """A callback of a life, as asyncio's own tasks and futures want it."""

    __slots__ = ("_when", "arguments", "callback", "is_cancelled", "life")

    def __init__(self, life, when, callback, arguments):
        self.life = life
        self._when = when
        self.callback = callback
        self.arguments = arguments
        self.is_cancelled = False

    def cancel(self):
        self.is_cancelled = True
        self.callback = self.arguments = None

    def cancelled(self):
        return self.is_cancelled

    def when(self):
        return self._when


class SimulatedLoop(asyncio.AbstractEventLoop):
    """Runs until told; ``now`` jumps to whatever is due next."""

    def __init__(self):
        self.now = 0.0
        self.life = Life("world")
        """Whose turn it is."""
        self.steps = 0
        self.errors = []
        """What no one caught: (life, message, exception)."""
        self._timers = []
        self._ready = deque()
        self._order = 0
        self._is_burying = False
        self.judge = None
        """Of what one callback of a judged life costs; None: nobody looks."""

    # -- what asyncio's own code calls ---------------------------------------------------------

    def time(self):
        return self.now

    def get_debug(self):
        return False

    def is_running(self):
        return True

    def is_closed(self):
        return False

    def create_future(self):
        return asyncio.Future(loop=self)

    def create_task(self, coro, *, name=None, context=None):
        task = asyncio.Task(coro, loop=self, name=name, context=self.life.context)
        tasks = self.life.tasks
        tasks[task] = None
        task.add_done_callback(lambda done: tasks.pop(done, None))
        if self.life.is_dead:  # What ends with it may want to tidy up: that never begins.
            task._log_destroy_pending = False
            coro.close()
        return task

    def call_soon(self, callback, *arguments, context=None):
        life = self.life if context is None else context.get(_LIFE, self.life)
        handle = Handle(life, self.now, callback, arguments)
        if not life.is_dead:  # What one that is buried lets go of, the living may wait for.
            self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay, callback, *arguments, context=None):
        life = self.life if context is None else context.get(_LIFE, self.life)
        return self._call(life, self.now + max(delay, 0.0), callback, arguments)

    def call_at(self, when, callback, *arguments, context=None):
        life = self.life if context is None else context.get(_LIFE, self.life)
        return self._call(life, when, callback, arguments)

    def _call(self, life, when, callback, arguments):
        handle = Handle(life, when, callback, arguments)
        if not life.is_dead:
            self._order += 1
            heappush(self._timers, (when, self._order, handle))
        return handle

    def call_exception_handler(self, context):
        error = context.get("exception")
        # What a process wanted of its disk when it ended is not told to anybody.
        if not self._is_burying and not isinstance(error, DiskKilled):
            self.errors.append((self.life.name, context.get("message"), error))

    async def shutdown_asyncgens(self):
        pass

    # -- lives ---------------------------------------------------------------------------------

    def call_for(self, life, delay, callback, *arguments):
        """Call something as another life, ``delay`` seconds from now."""
        return self._call(life, self.now + delay, callback, arguments)

    def start_for(self, life, coro, name=None):
        """Start a task of another life."""
        mine, self.life = self.life, life
        try:
            return self.create_task(coro, name=name)
        finally:
            self.life = mine

    def timers_of(self, life):
        """Return what a life waits for."""
        return [
            handle
            for _, _, handle in self._timers
            if handle.life is life and not handle.is_cancelled
        ]

    def pause(self, life):
        """Let nothing of a life run."""
        life.is_paused = True

    def resume(self, life):
        """Let a life go on: what became due meanwhile runs in its order."""
        life.is_paused = False
        waiting, life.waiting = life.waiting, []
        self._ready.extend(waiting)

    def bury(self, life):
        """End a life: nothing of it runs any more, not even the ends of its coroutines."""
        life.is_dead = True
        life.waiting.clear()
        self._timers[:] = [timer for timer in self._timers if timer[2].life is not life]
        heapify(self._timers)
        mine, self.life = self.life, life
        running = asyncio._get_running_loop()
        asyncio._set_running_loop(self)  # A job's thread, which may end a life, has none.
        self._is_burying = True
        try:
            for task in list(life.tasks):
                task._log_destroy_pending = False
                with suppress(BaseException):  # It may complain; nobody hears the dead.
                    task.get_coro().close()
        finally:
            self._is_burying = False
            asyncio._set_running_loop(running)
            self.life = mine
        life.tasks.clear()

    # -- running -------------------------------------------------------------------------------

    def run_until(self, is_over):
        """Run until ``is_over()``, which is asked between turns, or nothing is left to do."""
        timers, ready = self._timers, self._ready
        mine = self.life
        asyncio._set_running_loop(self)
        try:
            while not is_over():
                now = self.now
                while timers and timers[0][0] <= now:
                    ready.append(heappop(timers)[2])
                if not ready:
                    if not timers:
                        return
                    self.now = timers[0][0]
                    continue
                self._turn(len(ready))
        finally:
            asyncio._set_running_loop(None)
            self.life = mine

    def _turn(self, count):
        """Run the first ``count`` handles that are ready."""
        ready, judge = self._ready, self.judge
        for _ in range(count):
            handle = ready.popleft()
            life = handle.life
            if handle.is_cancelled or life.is_dead:
                continue
            if life.is_paused:
                life.waiting.append(handle)
                continue
            self.life = life
            self.steps += 1
            self.now += STEP_SECONDS
            is_judged = judge is not None and life.is_judged
            if is_judged:
                judge.begin()
            try:
                life.context.run(handle.callback, *handle.arguments)
            except Exception as error:  # noqa: BLE001 - as asyncio: it is reported
                if not life.is_dead:
                    self.errors.append((life.name, "a callback failed", error))
            if is_judged:
                judge.end(life)
