"""Ends this process when the other end of a socket is gone, whatever else this process does.

For a process that must not outlive the one that started it: its ports and locks are needed by the
next one. A thread waits in the kernel, so a loop that is busy or waits for a disk does not delay
it.
"""

import os
import select
import socket
import threading
import time

ENDED = 1
"""The exit code."""


def end_with(end: socket.socket, *, grace_seconds: float) -> None:
    """End this process ``grace_seconds`` after the other end of ``end`` is gone.

    The grace is for a stop in good order. Costs a thread and a descriptor for the process's life.
    """
    descriptor = os.dup(end.fileno())
    thread = threading.Thread(target=_wait, args=(descriptor, grace_seconds), name="lifeline")
    thread.daemon = True
    thread.start()


def _wait(descriptor: int, grace_seconds: float) -> None:
    poll = select.poll()
    poll.register(descriptor, 0)  # That it is gone is told unasked.
    poll.poll()
    time.sleep(grace_seconds)
    os._exit(ENDED)
