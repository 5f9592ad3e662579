"""Threads that do nothing but sync files, and need no interpreter for it.

A durable append is one fdatasync. Handed to a thread that runs Python, it costs the loop more than
the sync costs the kernel: each of the two waits for the interpreter's lock when the other has it,
about ten times per sync. These threads get a descriptor through a pipe, and their word comes back
through another, which the loop reads as it reads a socket: what ends in one turn of the loop
arrives together. See ``sync_loop``. Owned by a ``ThreadExecutor``.
"""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from ottla.env.disk import File, SyncDescriptor
from ottla.env.sync_loop import MESSAGE, serve

WAITING_MAX = 512
"""Syncs at a time: so many messages fit the smallest pipe there is, so neither end ever waits."""
_NO_DESCRIPTOR = -1

Done = Callable[[None, BaseException | None], None]


class SyncThreads:
    """A few such threads, started as work arrives. For the loop that uses them first."""

    def __init__(self, threads: int, name: str, *, call: Callable[..., None] | None = None) -> None:
        """``call(work)`` is how the loop calls in: it may measure that. None: just so."""
        self._limit = threads
        self._reader = self._receive if call is None else partial(call, self._receive)
        self._name = name
        self._threads: list[threading.Thread] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        """Whose thread reads the outcomes; None: nothing was opened yet."""
        self._requests = self._outcomes = (_NO_DESCRIPTOR, _NO_DESCRIPTOR)
        """The pipes: where to read and where to write."""
        self._token = 0
        self._waiting: dict[int, tuple[File, SyncDescriptor, Done]] = {}
        """By token. Use: keeps the descriptor open."""
        self._arrived: deque[tuple[int, int]] = deque()
        """Outcomes read and not told yet."""

    def submit(self, file: File, descriptor: SyncDescriptor, done: Done) -> bool:
        """Sync, then ``done`` on the loop, never before this returns. Does not block.

        False: nothing was done, there are too many or it is another loop.
        """
        if self._loop is not asyncio.get_running_loop() and not self._open():
            return False
        count = len(self._waiting)
        if count >= WAITING_MAX:
            return False
        if len(self._threads) < min(count + 1, self._limit):
            self._start_thread()
        token = self._token = (self._token + 1) & 0x7FFFFFFF
        self._waiting[token] = (file, descriptor, done)
        os.write(self._requests[1], MESSAGE.pack(token, descriptor.number))
        return True

    def close(self) -> None:
        """Finish what was submitted and end the threads. Blocks until then. Harmless twice."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        os.close(self._requests[1])  # What is in the pipe is done, then it is at its end.
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self._read()
        if loop.is_closed():
            self._waiting.clear()
        else:
            loop.remove_reader(self._outcomes[0])
            loop.call_soon(self._tell)
        for descriptor in (self._requests[0], *self._outcomes):
            os.close(descriptor)

    def _open(self) -> bool:
        """Make the pipes; False if another loop has them, or there can be no more open files."""
        if self._loop is not None:
            return False
        requests = None
        try:
            requests = os.pipe()
            self._requests, self._outcomes = requests, os.pipe()
        except OSError:
            for descriptor in requests or ():
                os.close(descriptor)
            return False
        os.set_blocking(self._outcomes[0], False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._outcomes[0], self._reader)
        return True

    def _start_thread(self) -> None:
        name = f"{self._name}-{len(self._threads)}"
        arguments = (self._requests[0], self._outcomes[1])
        thread = threading.Thread(target=serve, args=arguments, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _receive(self) -> None:
        self._read()
        self._tell()

    def _read(self) -> None:
        try:
            data = os.read(self._outcomes[0], WAITING_MAX * MESSAGE.size)
        except BlockingIOError:
            return
        self._arrived += MESSAGE.iter_unpack(data)

    def _tell(self) -> None:
        """Tell who waits. What is left when one of them fails is told in a later turn."""
        try:
            while self._arrived:
                token, code = self._arrived.popleft()
                file, _, done = self._waiting.pop(token)
                done(None, OSError(code, os.strerror(code), file.path) if code else None)
        finally:
            if self._arrived:
                asyncio.get_running_loop().call_soon(self._tell)
