"""What the three formats share: which subject, which schema, and when a registry is asked.

Owns the header in front of values, and what is kept for each subject and id. Encoders and decoders
never wait: they raise ``NeedsSchema``, and their caller runs ``fetch`` where waiting is allowed.
Knows no encoding. Source: Confluent's documentation of its serializers.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.client.library.failures import BadArgument
from ottla.client.library.formats import NeedsSchema
from ottla.schemas.framing import header, schema_id_of
from ottla.schemas.kept import Kept
from ottla.schemas.registry import SchemaRegistry
from ottla.schemas.schema import RegistryError, Schema

Write = Callable[[Any], bytes]
Read = Callable[[bytes], Any]
SubjectName = Callable[[str, str, str], str]
LATEST_SECONDS = 60.0
"""How long the newest version counts as the newest one."""
REFUSED_SECONDS = 5.0
"""How long an id that the registry does not know, or whose schema is unusable, stays so."""


class UnusableSchema(ValueError):
    """A value's schema is not in the registry, or cannot be used; others can be read."""


class _Encoding(NamedTuple):
    write: Write
    """From a value to all of its bytes, the header included."""
    ends: float | None
    """When the newest version is looked for again."""


class _Refused(NamedTuple):
    why: str
    ends: float


def _by_topic(topic: str, field: str, name: str) -> str:
    return f"{topic}-{field}"


def _by_record(topic: str, field: str, name: str) -> str:
    return name


def _by_both(topic: str, field: str, name: str) -> str:
    return f"{topic}-{name}"


_NAMES = {"topic": _by_topic, "record": _by_record, "topic-record": _by_both}


class SchemaFormat(ABC):
    """A serializer and a deserializer for ``ottla.Client``. For use from any thread."""

    kind: str
    """The registry's word: AVRO, JSON, PROTOBUF."""

    def __init__(
        self,
        registry: SchemaRegistry,
        *,
        auto_register: bool,
        use_latest: bool,
        normalize: bool,
        subject_name: str | SubjectName,
    ) -> None:
        if not isinstance(registry, SchemaRegistry):
            blocking = getattr(registry, "blocking", None)
            if not isinstance(blocking, SchemaRegistry):
                raise BadArgument("a format", f"expected a SchemaRegistry, found {registry!r}")
            registry = blocking
        if isinstance(subject_name, str):
            if subject_name not in _NAMES:
                why = f"{subject_name!r} is none of {', '.join(_NAMES)}"
                raise BadArgument("subject_name", why)
            subject_name = _NAMES[subject_name]
        self._registry = registry
        self._auto_register = auto_register and not use_latest
        self._use_latest = use_latest
        self._normalize = normalize
        self._subject_name = subject_name
        self._encodings: Kept[str, _Encoding] = Kept(registry.kept)
        self._readers: Kept[int, Read] = Kept(registry.kept)
        self._refused: Kept[int, _Refused] = Kept(registry.kept)

    # -- what a format does ------------------------------------------------------------------------

    @abstractmethod
    def _record_name(self) -> str:
        """Return the name of the type that is written, for subjects. Raises BadArgument."""

    @abstractmethod
    def _own_schema(self) -> Schema:
        """Return the schema to register or look up. May ask the registry. Raises BadArgument."""

    @abstractmethod
    def _writer(self, schema: Schema | None) -> Write:
        """Return what encodes; ``schema`` None: the format's own. May ask the registry."""

    @abstractmethod
    def _reader(self, schema_id: int) -> Read:
        """Return what decodes bytes (their header included). May ask. Raises ValueError."""

    # -- for producers and consumers ---------------------------------------------------------------

    def encoder(self, topic: str, field: str) -> Write:
        """Return what encodes there; it raises NeedsSchema. ``field``: "key" or "value"."""
        subject = self._subject_name(topic, field, self._record_name_for(topic, field))

        def encode(value: Any) -> bytes:
            found = self._encodings.get(subject)
            if found is None or (
                found.ends is not None and self._registry.monotonic() >= found.ends
            ):
                raise NeedsSchema(lambda: self._learn_to_write(subject))
            return found.write(value)

        return encode

    def decoder(self, topic: str, field: str) -> Read:
        """Return what decodes there; it raises NeedsSchema. ``field``: "key" or "value"."""

        def decode(data: bytes) -> Any:
            schema_id = schema_id_of(data)
            read = self._readers.get(schema_id)
            if read is not None:
                return read(data)
            refused = self._refused.get(schema_id)
            if refused is not None and self._registry.monotonic() < refused.ends:
                raise UnusableSchema(refused.why)
            raise NeedsSchema(lambda: self._learn_to_read(schema_id))

        return decode

    def encode(self, topic: str, value: Any, *, field: str = "value") -> bytes:
        """Return the bytes of ``value``; may block. Raises RegistryError, what the format raises.

        For use without ``ottla.Client``.
        """
        found: bytes = _waiting(self.encoder(topic, field), value)
        return found

    def decode(self, topic: str, data: bytes, *, field: str = "value") -> Any:
        """Return the value of ``data``; may block. Raises RegistryError, ValueError."""
        return _waiting(self.decoder(topic, field), data)

    # -- the inside --------------------------------------------------------------------------------

    def _record_name_for(self, topic: str, field: str) -> str:
        # The record's name is asked for only where the subject depends on it.
        marks = [self._subject_name(topic, field, each) for each in ("a", "b")]
        return "" if marks[0] == marks[1] else self._record_name()

    def _learn_to_write(self, subject: str) -> None:
        registry = self._registry
        if self._use_latest:
            ends = registry.monotonic() + LATEST_SECONDS
            try:
                newest = registry.latest(subject)
            except RegistryError as error:
                kept = self._encodings.get(subject)
                if kept is None or not error.is_retriable:
                    raise
                self._encodings.put(subject, kept._replace(ends=ends))  # The last one known.
                return
            self._check_kind(f"the newest schema of {subject}", newest.schema)
            write = self._writer(newest.schema)
            self._encodings.put(subject, _Encoding(_framed(newest.id, write), ends))
            return
        schema = self._own_schema()
        ask = registry.register if self._auto_register else registry.lookup
        known = ask(subject, schema, normalize=self._normalize)
        self._encodings.put(subject, _Encoding(_framed(known.id, self._writer(None)), None))

    def _learn_to_read(self, schema_id: int) -> None:
        try:
            self._readers.put(schema_id, self._reader(schema_id))
        except RegistryError as error:
            if error.status not in (404, 422):
                raise
            self._refuse(schema_id, str(error))
        except ValueError as error:
            self._refuse(schema_id, f"schema {schema_id} cannot be used: {error}")

    def _refuse(self, schema_id: int, why: str) -> None:
        ends = self._registry.monotonic() + REFUSED_SECONDS
        self._refused.put(schema_id, _Refused(why, ends))

    def _check_kind(self, what: str, schema: Schema) -> None:
        """Raise ValueError for a schema of another kind."""
        if schema.kind != self.kind:
            raise BadArgument(what, f"it is of {schema.kind}, not of {self.kind}")


def _framed(schema_id: int, write: Write) -> Write:
    head = header(schema_id)
    return lambda value: head + write(value)


def _waiting(step: Callable[[Any], Any], given: Any) -> Any:
    while True:
        try:
            return step(given)
        except NeedsSchema as needed:
            needed.fetch()
