"""The limits of one connection. ``ottla.settings`` makes them of the options.

Source: rows 1, 2 and 12-15 of the hostile-client rules (docs/hostile-clients.md).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Limits(NamedTuple):
    """What a connection may cost. Sizes in bytes, times in seconds."""

    request_bytes_max: int = 100 * 1024 * 1024
    """``socket.request.max.bytes``: a larger frame closes the connection."""
    queued_bytes_max: int = 256 * 1024 * 1024
    """``queued.max.request.bytes``: the memory of all connections' requests together."""
    in_flight_max: int = 64
    """Requests of one connection that may wait for their answers at the same time."""
    in_flight_bytes_max: int = 64 * 1024 * 1024
    """The size of those requests together."""
    write_buffer_bytes: int = 1024 * 1024
    """Unsent answer bytes above which a connection takes no further request."""
    write_stall_seconds: float = 60.0
    """A connection whose peer reads no byte of a waiting answer for this long is closed."""
    idle_seconds: float = 600.0
    """``connections.max.idle.ms``; infinite: never."""
    frame_seconds: float = 30.0
    """A frame must be complete this long after its first byte, plus its size divided by
    ``bytes_per_second_min``."""
    bytes_per_second_min: int = 64 * 1024
    """``ottla.request.read.min.bytes.per.second``: how fast requests must arrive, and how fast
    answers must be read while memory for answers is scarce."""
    connections_max: int = 10_000
    """``max.connections``: one more is closed right after accept."""
    connections_per_ip_max: int = 1_000
    """``max.connections.per.ip``."""
    connections_of_ip: Mapping[str, int] = MappingProxyType({})
    """``max.connections.per.ip.overrides``: of single addresses, in its place."""
    backlog: int = 50
    """``socket.listen.backlog.size``."""
