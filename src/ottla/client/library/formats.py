"""Serializers and deserializers: what turns keys and values into bytes, and back.

Anything callable with one argument will do; "str" and "json" name two. A format that needs to know
the topic, or may have to fetch a schema first (``ottla.schemas``), has ``encoder`` and ``decoder``,
which return the callable. Such a callable raises ``NeedsSchema`` instead of waiting; whoever called
it lets ``fetch`` run where waiting is allowed, and calls again.
"""

import json
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from ottla.client.library.failures import BadArgument

Encode = Callable[[Any], bytes | None]
Decode = Callable[[bytes], Any]


class NeedsSchema(Exception):
    """A schema is not there yet: ``fetch`` brings it, and blocks."""

    def __init__(self, fetch: Callable[[], object]) -> None:
        super().__init__("a schema has to be fetched first")
        self.fetch = fetch


@runtime_checkable
class Bound(Protocol):
    """A format that depends on the topic, and on whether it is a key or a value."""

    def encoder(self, topic: str, field: str) -> Encode:
        """Return what encodes there. ``field`` is "key" or "value"."""

    def decoder(self, topic: str, field: str) -> Decode:
        """Return what decodes there. ``field`` is "key" or "value"."""


Serializer = Encode | Bound | str | None
Deserializer = Decode | Bound | str | None


def _encode_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _encode_text(value: str) -> bytes:
    return value.encode()


def _decode_text(data: bytes) -> str:
    return data.decode()


_ENCODERS: dict[str, Encode] = {"str": _encode_text, "json": _encode_json}
_DECODERS: dict[str, Decode] = {"str": _decode_text, "json": json.loads}


class Formats:
    """One for keys and one for values, bound to topics when they are first used."""

    def __init__(
        self,
        key: Encode | Decode | Bound | str | None,
        value: Encode | Decode | Bound | str | None,
        *,
        encodes: bool,
    ) -> None:
        """None: bytes as they are. Raises BadArgument for what is no format."""
        self._given = {
            "key": _found(key, "key", encodes=encodes),
            "value": _found(value, "value", encodes=encodes),
        }
        self._encodes = encodes
        self.are_plain = key is None and value is None
        """Whether bytes go through as they are."""
        self._bound: dict[tuple[str, str], Callable[[Any], Any]] = {}

    def apply(self, topic: str, field: str, given: Any) -> Any:
        """Return ``given`` encoded or decoded; None stays None. Raises what the format raises."""
        form = self._given[field]
        if given is None or form is None:
            return given
        bound = self._bound.get((topic, field))
        if bound is None:
            bound = self._bind(form, topic, field) if isinstance(form, Bound) else form
            self._bound[topic, field] = bound
        return bound(given)

    def _bind(self, form: Bound, topic: str, field: str) -> Callable[[Any], Any]:
        return form.encoder(topic, field) if self._encodes else form.decoder(topic, field)


def _found(
    given: Encode | Decode | Bound | str | None, field: str, *, encodes: bool
) -> Callable[[Any], Any] | Bound | None:
    if given in (None, "bytes"):
        return None
    if isinstance(given, str):
        table: dict[str, Callable[[Any], Any]] = dict(_ENCODERS if encodes else _DECODERS)
        if given not in table:
            names = ", ".join(["bytes", *table])
            raise BadArgument(f"the format of the {field}", f"{given!r} is none of {names}")
        return table[given]
    if not callable(given) and not isinstance(given, Bound):
        raise BadArgument(f"the format of the {field}", f"{given!r} cannot be called")
    return given
