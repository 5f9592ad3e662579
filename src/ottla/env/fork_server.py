"""Processes of one kind that are forked from the first of them, and share what it has imported.

For programs that somebody else starts, again and again: a start that finds the first one hands its
descriptors over and ends; a process that is forked there goes on with them. Owns the name at which
they meet, descriptors on their way, and forks. Linux only: the name is a socket's without a path,
so it is taken by one process at a time and is free when that one ends, however it does.

    start      hand_over: connect, send a byte with the descriptors, wait for a byte
    server     ForkServer: accept, fork
    forked     answers the byte, goes on

The answer comes from the forked process: without it (the stream ends) there is none that has the
descriptors, so the start may use them itself.
"""

import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

LOOK_SECONDS = 1.0
"""How often the server looks for who started it, and for processes that have ended."""
REQUEST_SECONDS = 10.0
"""So long the server waits for a request after its connection."""
IDLE_LOOKS_MAX = 60
"""After so many looks at nothing the server ends."""
DESCRIPTORS_MAX = 16
GO = b"\n"
_CREDENTIALS = struct.Struct("3i")
STANDARD = (0, 1, 2)


def hand_over(name: str, descriptors: Sequence[int]) -> bool:
    """Give ``descriptors``, and the standard ones, to a process that is forked at ``name``.

    True: it has them, and this process should end. False: nobody has. Waits for as long as the
    server imports what it needs.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        try:
            server.connect(_address(name))
            if not _is_ours(server):
                return False
            socket.send_fds(server, [GO], [*descriptors, *STANDARD])
            return server.recv(1) == GO
        except OSError:
            return False


class ForkServer:
    """The first process, which stays as long as who started it, and some time after the last."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._parent = os.getppid()
        self._idle_looks = 0

    @classmethod
    def claim(cls, name: str) -> "ForkServer | None":
        """Take a name. Requests wait from now on. None: another process has it."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.bind(_address(name))
            listening.listen()
        except OSError:
            listening.close()
            return None
        listening.settimeout(LOOK_SECONDS)
        return cls(listening)

    def serve(self, first: Sequence[int]) -> list[int]:
        """Fork a process for ``first`` and for each request; return in these, with descriptors.

        The standard ones are in place there. The server itself ends in here (SystemExit): when the
        process that started it is gone, or when there has been no forked one for a minute. It does
        not end with the one for ``first``, at whose end it may be sent a SIGTERM. Where not even
        that one can be forked, this process goes on as it. Nothing but one thread may run.
        """
        # Before the fork: the forked one may have worked, and the SIGTERM may be here, at once.
        before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            is_server = os.fork() != 0
        except OSError:
            is_server = False
        if not is_server:
            signal.signal(signal.SIGTERM, before)
            self._listening.close()
            return list(first)
        self._leave_the_first(first)
        while os.getppid() == self._parent and self._idle_looks < IDLE_LOOKS_MAX:
            try:
                asked, _ = self._listening.accept()
            except TimeoutError:
                self._idle_looks = 0 if _have_children() else self._idle_looks + 1
                continue
            except OSError:  # there is no room for a connection
                time.sleep(LOOK_SECONDS)
                continue
            descriptors = self._fork_for(asked)
            if descriptors is not None:
                return descriptors
        sys.exit(0)

    def _leave_the_first(self, descriptors: Sequence[int]) -> None:
        for each in descriptors:
            os.close(each)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for each in STANDARD:
            os.dup2(nowhere, each)
        os.close(nowhere)

    def _fork_for(self, asked: socket.socket) -> list[int] | None:
        """Fork a process for a request. None: this is the server."""
        given: list[int] = []
        with asked:
            asked.settimeout(REQUEST_SECONDS)
            try:
                if not _is_ours(asked):
                    return None
                told, given = _receive(asked)
                if told != GO or len(given) <= len(STANDARD) or os.fork() != 0:
                    return None
                with suppress(OSError):  # who asked was killed: these are ours all the same
                    asked.sendall(GO)
                self._listening.close()
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                descriptors, given = given, []
            except OSError:  # no request came, or there is no room for a process
                return None
            finally:
                for each in given:
                    os.close(each)
        own, standard = descriptors[: -len(STANDARD)], descriptors[-len(STANDARD) :]
        for each, at in zip(standard, STANDARD, strict=True):
            os.dup2(each, at)
            os.close(each)
        return own


def _receive(asked: socket.socket) -> tuple[bytes, list[int]]:
    told, given, _, _ = socket.recv_fds(asked, len(GO), DESCRIPTORS_MAX)
    return told, given


def _address(name: str) -> str:
    return f"\0{name}"


def _is_ours(connected: socket.socket) -> bool:
    """Tell whether the other end is a process of the same user: anybody may take a name."""
    told = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    user: int = _CREDENTIALS.unpack(told)[1]
    return user == os.getuid()


def _have_children() -> bool:
    """Tell whether a forked process is left; let go of those that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True
