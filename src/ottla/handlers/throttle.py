"""Sets the throttle time of an answer: how long its client has to wait before its next request.

Owns where that field is. A message has it by name; if the handler has set it, the larger time
counts. The answer of a direct way is bytes already: there the field is first or last, depending on
API and version.
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
    """Tell the gate that a request is answered, and put the throttle time into ``response``."""
    if call.passage is None:
        return
    throttle_ms = call.passage.answered(has_answer=response is not None)
    if throttle_ms and response is not None and _FIELD in response.FIELDS:
        throttled = cast("_Throttled", response)
        throttled.throttle_time_ms = max(throttled.throttle_time_ms, throttle_ms)


def leave_framed(passage: Passage, answer: Answer | None, position: int | None) -> Answer | None:
    """Do as ``leave`` for an encoded answer; ``position``: see ``throttle_position``."""
    throttle_ms = passage.answered(has_answer=answer is not None)
    passage.left()
    if not throttle_ms or answer is None or position is None:
        return answer
    changed = bytearray().join(cast("list[bytes]", answer))
    _INT32.pack_into(changed, position, throttle_ms)
    return [changed]


def throttle_position(
    response: type[Message], version: int, *, is_flexible_header: bool
) -> int | None:
    """Return the byte position of the field in a framed answer; negative: from its end.

    None: this version has no such field. In flexible versions a field at the end is followed by an
    empty set of tags. Raises InvariantBroken when the field is neither first nor last: a direct way
    cannot set it there.
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
