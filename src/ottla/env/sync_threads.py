"""Threads that only sync files, without the interpreter.

A durable append needs one fdatasync. In a thread that runs Python, it costs the loop more than the
sync costs the kernel: about ten times per sync, loop and thread wait for the interpreter's lock
while the other has it. These threads receive a descriptor through a pipe and report through another
pipe, which the loop reads like a socket; syncs that end in one turn of the loop arrive together.
One more thread syncs whole file systems, so that a slow one holds nobody up. See ``sync_loop``.
Owned by a ``SyncQueue``.
"""

import asyncio
import os
import threading
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from ottla.env.disk import SyncDescriptor
from ottla.env.sync_loop import ONE_FILE, OUTCOME, REQUEST, serve

WAITING_MAX = 256
"""Syncs at a time: so many messages fit the smallest pipe there is, so neither end ever waits."""
_NO_DESCRIPTOR = -1
_NO_PIPE = (_NO_DESCRIPTOR, _NO_DESCRIPTOR)

Done = Callable[[int, int], None]
"""Told an errno, 0 for none, and the microseconds it took."""


class SyncThreads:
    """A few such threads, started as work arrives. For the loop that uses them first."""

    def __init__(
        self,
        threads: int,
        name: str,
        *,
        told: Callable[[bool], None],
        call: Callable[..., None] | None = None,
    ) -> None:
        """``told``: called with True before some who wait are told, with False after it.

        ``call(work)`` is how the loop calls in: it may measure that. None: just so.
        """
        self._limit = threads
        self._reader = self._receive if call is None else partial(call, self._receive)
        self._name = name
        self._told = told
        self._threads: list[threading.Thread] = []
        self._count = 0
        """Of the threads, those for single files."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop whose thread reads the outcomes. None: nothing was opened yet."""
        self._requests = self._volumes = self._outcomes = _NO_PIPE
        """The pipes: where to read and where to write."""
        self._token = 0
        self._waiting: dict[int, tuple[Sequence[SyncDescriptor], array[int] | None, Done]] = {}
        """By token. Use: keeps the descriptors open, and their numbers in memory."""
        self._arrived: deque[tuple[int, int, int]] = deque()
        """Outcomes read and not told yet."""

    def submit(self, descriptor: SyncDescriptor, done: Done) -> bool:
        """Sync, then ``done`` on the loop, never before this returns. Does not block.

        False: nothing was done, there are too many, it is another loop, or no thread is to be had.
        """
        if self._loop is not asyncio.get_running_loop() and not self._open():
            return False
        count = len(self._waiting)
        if count >= WAITING_MAX:
            return False
        if self._count < self._limit and self._count <= count:
            if self._start_thread(self._requests[0]):
                self._count += 1
            elif not self._count:
                return False
        token = self._token = (self._token + 1) & 0x7FFFFFFF
        self._waiting[token] = ((descriptor,), None, done)
        os.write(self._requests[1], REQUEST.pack(token, ONE_FILE, descriptor.number))
        return True

    def submit_together(
        self, volume: SyncDescriptor, descriptors: Sequence[SyncDescriptor], done: Done
    ) -> bool:
        """Do as ``submit`` for all that the file system of ``volume`` holds."""
        if self._loop is not asyncio.get_running_loop() and not self._open():
            return False
        if len(self._waiting) >= WAITING_MAX:
            return False
        if self._volumes is _NO_PIPE:
            try:
                pipe = os.pipe()
            except OSError:
                return False
            if not self._start_thread(pipe[0]):
                for end in pipe:
                    os.close(end)
                return False
            self._volumes = pipe
        numbers = array("i", [volume.number, *(each.number for each in descriptors)])
        token = self._token = (self._token + 1) & 0x7FFFFFFF
        self._waiting[token] = ((volume, *descriptors), numbers, done)
        where, _ = numbers.buffer_info()
        os.write(self._volumes[1], REQUEST.pack(token, len(descriptors), where))
        return True

    def close(self) -> None:
        """Finish what was submitted and end the threads. Blocks until then. Harmless twice."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        for _, requests in (self._requests, self._volumes):
            if requests != _NO_DESCRIPTOR:
                os.close(requests)  # What is in the pipe is done, then it is at its end.
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self._read()
        if loop.is_closed():
            self._waiting.clear()
        else:
            loop.remove_reader(self._outcomes[0])
            loop.call_soon(self._tell)
        for descriptor in (self._requests[0], self._volumes[0], *self._outcomes):
            if descriptor != _NO_DESCRIPTOR:
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

    def _start_thread(self, requests: int) -> bool:
        """Start one more; False when the machine has no room for it just now."""
        name = f"{self._name}-{len(self._threads)}"
        arguments = (requests, self._outcomes[1])
        thread = threading.Thread(target=serve, args=arguments, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        self._threads.append(thread)
        return True

    def _receive(self) -> None:
        self._read()
        self._tell()

    def _read(self) -> None:
        try:
            data = os.read(self._outcomes[0], WAITING_MAX * OUTCOME.size)
        except BlockingIOError:
            return
        self._arrived += OUTCOME.iter_unpack(data)

    def _tell(self) -> None:
        """Tell who waits. What is left when one of them fails is told in a later turn."""
        self._told(True)
        try:
            while self._arrived:
                token, code, microseconds = self._arrived.popleft()
                _, _, done = self._waiting.pop(token)
                done(code, microseconds)
        finally:
            if self._arrived:
                asyncio.get_running_loop().call_soon(self._tell)
            self._told(False)
