"""Protobuf values by a registry's schemas. Needs protobuf: ``pip install 'ottla[protobuf]'``.

Owns the use of protobuf: a registry keeps .proto files, which are registered as their descriptors
and asked for as such, so that no compiler is needed. Source: Confluent's Protobuf serializer.
"""

import base64
import importlib
from typing import Any

from ottla.client.library.failures import BadArgument
from ottla.schemas.formats import Read, SchemaFormat, SubjectName, Write
from ottla.schemas.framing import HEADER_BYTES, encoded_indexes, read_indexes, schema_id_of
from ottla.schemas.kept import Kept
from ottla.schemas.references import references_of
from ottla.schemas.registry import SchemaRegistry
from ottla.schemas.schema import PROTOBUF, Reference, Schema

_BUILT_IN = ("google/protobuf/", "google/type/", "confluent/")
"""Files that registries know."""
MESSAGES_KEPT = 100
"""Of one schema."""


class Protobuf(SchemaFormat):
    """Protobuf, as serializer and deserializer."""

    kind = PROTOBUF

    def __init__(
        self,
        registry: SchemaRegistry,
        message: type | None = None,
        *,
        auto_register: bool = True,
        use_latest: bool = False,
        normalize: bool = False,
        subject_name: str | SubjectName = "topic",
    ) -> None:
        """Make a format. Raises BadArgument.

        ``message``: the class, made by protoc, of what is written and read; then the registry is
        not asked for the schema of what is read. None: values are read only, as messages of the
        schema that they were written with. For the other arguments see ``Avro``. The files that the
        message's file imports are registered by their names.
        """
        super().__init__(
            registry,
            auto_register=auto_register,
            use_latest=use_latest,
            normalize=normalize,
            subject_name=subject_name,
        )
        _protobuf()
        if message is not None and not hasattr(message, "DESCRIPTOR"):
            raise BadArgument("a Protobuf format", f"{message!r} is no class of messages")
        self._message: Any = message
        self._indexes = b"" if message is None else encoded_indexes(_way_to(self._descriptor))

    @property
    def _descriptor(self) -> Any:
        if self._message is None:
            fix = "give the format the class of the messages"
            raise BadArgument("write Protobuf", "there is no class of messages", fix=fix)
        return self._message.DESCRIPTOR

    def _record_name(self) -> str:
        return str(self._descriptor.full_name)

    def _own_schema(self) -> Schema:
        file = self._descriptor.file
        return Schema(_text_of(file), PROTOBUF, self._references(file))

    def _references(self, file: Any) -> tuple[Reference, ...]:
        """Register (or look up) what ``file`` imports. Asks the registry."""
        found = []
        for each in file.dependencies:
            if each.name.startswith(_BUILT_IN):
                continue
            schema = Schema(_text_of(each), PROTOBUF, self._references(each))
            if self._auto_register:
                self._registry.register(each.name, schema, normalize=self._normalize)
            known = self._registry.lookup(each.name, schema, normalize=self._normalize)
            version = known.version
            if version is None:
                raise BadArgument("register a schema", f"the registry gave {each.name} no version")
            found.append(Reference(each.name, each.name, version))
        return tuple(found)

    def _writer(self, schema: Schema | None) -> Write:
        message, indexes = self._message, self._indexes
        name = self._descriptor.full_name

        def encode(value: Any) -> bytes:
            if not isinstance(value, message):
                raise TypeError(f"expected a {name}, found {type(value).__name__}")
            data: bytes = value.SerializeToString()
            return indexes + data

        return encode

    def decoder(self, topic: str, field: str) -> Read:
        """Return what decodes there. ``field``: "key" or "value"."""
        message = self._message
        if message is None:
            return super().decoder(topic, field)

        def decode(data: bytes) -> Any:
            schema_id_of(data)
            _, start = read_indexes(data, HEADER_BYTES)
            found = message()
            found.ParseFromString(data[start:])
            return found

        return decode

    def _reader(self, schema_id: int) -> Read:
        schema = self._registry.by_id(schema_id, form="serialized")
        self._check_kind(f"schema {schema_id}", schema)
        file = self._file_of(schema)
        kept: Kept[tuple[int, ...], Any] = Kept(MESSAGES_KEPT)
        get_class = _protobuf().message_factory.GetMessageClass

        def decode(data: bytes) -> Any:
            indexes, start = read_indexes(data, HEADER_BYTES)
            message = kept.get(indexes)
            if message is None:
                message = get_class(_message_at(file, indexes))
                kept.put(indexes, message)
            found = message()
            found.ParseFromString(data[start:])
            return found

        return decode

    def _file_of(self, schema: Schema) -> Any:
        """Return the descriptor of a schema's file, in a pool of its own. Asks the registry."""
        protobuf = _protobuf()
        pool = protobuf.descriptor_pool.DescriptorPool()
        try:
            for name, each in references_of(self._registry, schema, form="serialized"):
                _add(pool, name, each.text)
            _add(pool, "the schema", schema.text)
            return pool.FindFileByName("the schema")
        except (TypeError, ValueError, KeyError) as error:
            raise BadArgument("read a Protobuf schema", str(error)) from error


def _add(pool: Any, name: str, text: str) -> None:
    """Add a file, and the built-in ones that it imports."""
    protobuf = _protobuf()
    file = protobuf.descriptor_pb2.FileDescriptorProto()
    try:
        file.ParseFromString(base64.b64decode(text, validate=True))
    except protobuf.message.DecodeError as error:
        raise ValueError(f"{name} is no descriptor: {error}") from error
    file.name = name
    for each in file.dependency:
        if each.startswith(_BUILT_IN):
            _add_built_in(pool, each)
    pool.Add(file)


def _add_built_in(pool: Any, name: str) -> None:
    protobuf = _protobuf()
    if name.startswith("google/"):  # Their modules register them in the default pool.
        importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    found = protobuf.descriptor_pool.Default().FindFileByName(name)
    file = protobuf.descriptor_pb2.FileDescriptorProto()
    found.CopyToProto(file)
    for each in file.dependency:
        _add_built_in(pool, each)
    pool.Add(file)


def _text_of(file: Any) -> str:
    return base64.standard_b64encode(file.serialized_pb).decode()


def _way_to(descriptor: Any) -> list[int]:
    """Return the indexes from the file to a message."""
    found = []
    while descriptor is not None:
        around = descriptor.containing_type
        inner = descriptor.file.message_types_by_name.values() if around is None else ()
        names = [each.name for each in (inner if around is None else around.nested_types)]
        found.append(names.index(descriptor.name))
        descriptor = around
    return found[::-1]


def _message_at(file: Any, indexes: tuple[int, ...]) -> Any:
    """Return the message that ``indexes`` lead to. Raises ValueError."""
    at, inner = None, list(file.message_types_by_name.values())
    for each in indexes:
        if each >= len(inner):
            raise ValueError(f"the schema has no message at {list(indexes)}")
        at = inner[each]
        inner = list(at.nested_types)
    return at


def _protobuf() -> Any:
    try:
        import google.protobuf.descriptor_pb2
        import google.protobuf.descriptor_pool
        import google.protobuf.message
        import google.protobuf.message_factory
    except ImportError as error:
        fix = "pip install 'ottla[protobuf]'"
        raise BadArgument("read and write Protobuf", "protobuf is missing", fix=fix) from error
    return google.protobuf
