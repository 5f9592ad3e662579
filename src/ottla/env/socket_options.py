"""The options of every TCP socket, those of the loop and the blocking ones.

A peer that has gone without a word, and a way that drops a silent connection (as firewalls and
translators of addresses do after some minutes), must not cost a request its whole timeout: the
system asks a silent peer each minute, which also keeps the way open. Source: reliability 3, row 13.
"""

import socket

KEEPALIVE_IDLE_SECONDS = 60
KEEPALIVE_INTERVAL_SECONDS = 10
KEEPALIVE_COUNT = 3
USER_TIMEOUT_MS = 60_000

_OPTIONS: tuple[tuple[int, str, int], ...] = (
    (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
    (socket.IPPROTO_TCP, "TCP_NODELAY", 1),
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", KEEPALIVE_IDLE_SECONDS),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", KEEPALIVE_INTERVAL_SECONDS),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", KEEPALIVE_COUNT),
    (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", USER_TIMEOUT_MS),
)
"""By name, because not every system has every one; what is missing is left out."""


def set_options(stream: socket.socket) -> None:
    """Set them. A listening socket passes them on to those that it accepts. Raises OSError."""
    for level, name, value in _OPTIONS:
        option = getattr(socket, name, None)
        if option is not None:
            stream.setsockopt(level, option, value)
