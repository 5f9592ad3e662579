"""A way to a broker that stands still behind the n-th answer: what then happens is certain.

A command behind it waits for the next answer, and for nothing else, whatever it is. The broker
tells its clients the proxy's address as its own (``advertised.listeners``).
"""

import contextlib
import socket
import threading


class StallingProxy:
    """Passes bytes to a broker, and as many answers back as ``begin`` says; a context manager."""

    def __init__(self):
        self._target = None
        self._left = None
        self._open = []
        self._lock = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.place = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.stalled = threading.Event()
        """Set when an answer is held back."""

    def lead_to(self, bootstrap):
        host, _, port = bootstrap.rpartition(":")
        self._target = host, int(port)

    def begin(self, answers=None):
        """Break what there is, and pass so many answers from now on; None: all."""
        with self._lock:
            ended, self._open = self._open, []
            self._left = answers
            self.stalled.clear()
        for each in ended:
            _end(each)

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        _end(self._listening)
        self.begin()

    def _accept(self):
        with contextlib.suppress(OSError):  # Its end.
            while True:
                ours, _ = self._listening.accept()
                theirs = socket.create_connection(self._target)
                with self._lock:
                    self._open += [ours, theirs]
                for pump in (self._pass_requests, self._pass_answers):
                    threading.Thread(target=pump, args=(ours, theirs), daemon=True).start()

    def _pass_requests(self, ours, theirs):
        with contextlib.suppress(OSError):
            while data := ours.recv(1 << 16):
                theirs.sendall(data)
            theirs.shutdown(socket.SHUT_WR)

    def _pass_answers(self, ours, theirs):
        with contextlib.suppress(OSError, ValueError), theirs.makefile("rb") as answers:
            while head := answers.read(4):
                body = answers.read(int.from_bytes(head, "big"))
                with self._lock:
                    if ours not in self._open:
                        return
                    if self._left == 0:
                        self.stalled.set()
                        return
                    if self._left is not None:
                        self._left -= 1
                    ours.sendall(head + body)


def _end(connection):
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
