"""The throttle time of an answer: how long its client has to wait before it asks again.

Owns where that field stands. A message has it by name, and the larger time counts if the handler
has set one. The answer of a direct way is bytes: there it stands first or last, by API and version.
"""

import struct
from typing import Protocol, cast

from ottla.errors import InvariantBroken
from ottla.handlers.call import Answer, Call
from ottla.handlers.gate import Passage
from ottla.protocol.header import CORRELATION_ID_BYTES, LENGTH_BYTES
from ottla.protocol.schema import Message

_FIELD = "throttle_time_ms"
_INT32 = struct.Struct(">i")


class _Throttled(Protocol):
    """A response with the field."""

    throttle_time_ms: int


def leave(call: Call, response: Message | None) -> None:
    """Tell the gate that a request is answered, and the answer how long its client has to wait."""
    if call.passage is None:
        return
    throttle_ms = call.passage.answered()
    if throttle_ms and response is not None and _FIELD in response.FIELDS:
        throttled = cast("_Throttled", response)
        throttled.throttle_time_ms = max(throttled.throttle_time_ms, throttle_ms)


def leave_framed(passage: Passage, answer: Answer | None, position: int | None) -> Answer | None:
    """Do as ``leave`` for an answer that is encoded; ``position`` is the field's in its bytes."""
    throttle_ms = passage.answered()
    if not throttle_ms or answer is None or position is None:
        return answer
    changed = bytearray().join(cast("list[bytes]", answer))
    _INT32.pack_into(changed, position, throttle_ms)
    return [changed]


def throttle_position(
    response: type[Message], version: int, *, is_flexible_header: bool
) -> int | None:
    """Return where the field stands in a framed answer; negative: counted from the end.

    None: this version has none. From the end it stands before an empty set of tags, in flexible
    versions. Raises InvariantBroken when it stands in the middle: no direct way can set it there.
    """
    names = [
        name
        for name, field in response.FIELDS.items()
        if version in field.versions and field.tag is None
    ]
    if _FIELD not in names:
        return None
    if names[0] == _FIELD:
        return LENGTH_BYTES + CORRELATION_ID_BYTES + is_flexible_header
    if names[-1] == _FIELD:
        return -_INT32.size - (version in response.FLEXIBLE)
    raise InvariantBroken(f"{response.__name__} has {_FIELD} in its middle")
