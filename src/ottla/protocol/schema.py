"""The language of the message tables: a message is a class, its fields are typed columns.

    class HeartbeatRequest(Message, api_key=12, versions="0-4", flexible="4+"):
        group_id: str = string()
        generation_id: int = int32()
        member_id: str = string()
        group_instance_id: str | None = string("3+", nullable="3+", default=None)

Owns this language and the methods of every message; knows no API. The tables in ``messages`` use
it; ``compiler`` turns (table, version) into code on first use.

Rules. In a version without a field, decoding gives its default, and encoding leaves it out whatever
its value. A field without ``default`` must be given to the constructor. A tagged field is sent only
when it differs from its default; a tagged struct's default is None, meaning "not sent". Arrays are
lists, uuids 16 raw bytes; ``records`` decode to a memoryview into the receive buffer. Text that is
not UTF-8 is decoded with replacement characters, as in Kafka.
Source: Kafka's message schema rules, KIP-482.
"""

from collections.abc import Callable, Generator
from typing import ClassVar, Literal, Self, TypeAlias, TypeVar, cast, dataclass_transform, overload

from ottla.errors import ErrorCode, KafkaError, MalformedMessage
from ottla.ids import TopicId
from ottla.protocol.compiler import (
    compile_constructor,
    compile_decoder,
    compile_encoder,
)
from ottla.protocol.fields import FIXED_WIDTH_BYTES, Field, Required, Versions, Wire
from ottla.protocol.primitives import RecordBytes, Splice, Splices, join_splices

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
FREED_AT_A_TIME = 1000
"""Parts of a message that are freed without a yield: some 0.1 ms."""
Missing: TypeAlias = Literal[Required.REQUIRED]
MISSING: Missing = Required.REQUIRED


def _field(
    wire: Wire,
    versions: str,
    default: object,
    *,
    nullable: str = "",
    of: object = None,
    tag: int | None = None,
) -> Field:
    return Field(wire, Versions.parse(versions), Versions.parse(nullable), default, of, tag)


def boolean(
    versions: str = "0+", *, default: bool | Missing = MISSING, tag: int | None = None
) -> bool:
    """One byte, 0 or 1; any other byte reads as true."""
    return cast("bool", _field(Wire.BOOLEAN, versions, default, tag=tag))


def int8(versions: str = "0+", *, default: int | Missing = MISSING, tag: int | None = None) -> int:
    """Signed, one byte."""
    return cast("int", _field(Wire.INT8, versions, default, tag=tag))


def int16(versions: str = "0+", *, default: int | Missing = MISSING, tag: int | None = None) -> int:
    """Signed, two bytes."""
    return cast("int", _field(Wire.INT16, versions, default, tag=tag))


def int32(versions: str = "0+", *, default: int | Missing = MISSING, tag: int | None = None) -> int:
    """Signed, four bytes."""
    return cast("int", _field(Wire.INT32, versions, default, tag=tag))


def int64(versions: str = "0+", *, default: int | Missing = MISSING, tag: int | None = None) -> int:
    """Signed, eight bytes."""
    return cast("int", _field(Wire.INT64, versions, default, tag=tag))


def uint16(
    versions: str = "0+", *, default: int | Missing = MISSING, tag: int | None = None
) -> int:
    """Unsigned, two bytes."""
    return cast("int", _field(Wire.UINT16, versions, default, tag=tag))


def uint32(
    versions: str = "0+", *, default: int | Missing = MISSING, tag: int | None = None
) -> int:
    """Unsigned, four bytes."""
    return cast("int", _field(Wire.UINT32, versions, default, tag=tag))


def float64(versions: str = "0+", *, default: float | Missing = MISSING) -> float:
    """IEEE 754, eight bytes."""
    return cast("float", _field(Wire.FLOAT64, versions, default))


def uuid(
    versions: str = "0+", *, default: TopicId | Missing = MISSING, tag: int | None = None
) -> TopicId:
    """16 raw bytes."""
    return cast("TopicId", _field(Wire.UUID, versions, default, tag=tag))


@overload
def string(versions: str = ..., *, default: str | Missing = ..., tag: int | None = ...) -> str: ...
@overload
def string(
    versions: str = ...,
    *,
    nullable: str,
    default: str | Missing | None = ...,
    tag: int | None = ...,
) -> str | None: ...
def string(
    versions: str = "0+",
    *,
    nullable: str = "",
    default: str | Missing | None = MISSING,
    tag: int | None = None,
) -> str | None:
    """UTF-8 text; null in the versions ``nullable``."""
    return cast("str | None", _field(Wire.STRING, versions, default, nullable=nullable, tag=tag))


@overload
def bytes_(versions: str = ..., *, default: bytes | Missing = ...) -> bytes: ...
@overload
def bytes_(
    versions: str = ..., *, nullable: str, default: bytes | Missing | None = ...
) -> bytes | None: ...
def bytes_(
    versions: str = "0+", *, nullable: str = "", default: bytes | Missing | None = MISSING
) -> bytes | None:
    """Opaque bytes, copied out of the receive buffer; null in the versions ``nullable``."""
    return cast("bytes | None", _field(Wire.BYTES, versions, default, nullable=nullable))


@overload
def records(versions: str = ...) -> RecordBytes: ...
@overload
def records(
    versions: str = ..., *, nullable: str, default: Missing | None = ...
) -> RecordBytes | None: ...
def records(
    versions: str = "0+", *, nullable: str = "", default: Missing | None = MISSING
) -> RecordBytes | None:
    """Record batches, never copied: decoded as a memoryview, sent in place when large."""
    return cast("RecordBytes | None", _field(Wire.RECORDS, versions, default, nullable=nullable))


@overload
def array(
    of: Callable[..., T],
    versions: str = ...,
    *,
    default: list[T] | Missing = ...,
    tag: int | None = ...,
) -> list[T]: ...
@overload
def array(
    of: Callable[..., T],
    versions: str = ...,
    *,
    nullable: str,
    default: list[T] | Missing | None = ...,
    tag: int | None = ...,
) -> list[T] | None: ...
def array(
    of: Callable[..., T],
    versions: str = "0+",
    *,
    nullable: str = "",
    default: list[T] | Missing | None = MISSING,
    tag: int | None = None,
) -> list[T] | None:
    """List of structs, or of a simple type (``array(int32)``). A default list must be empty."""
    element = of if isinstance(of, type) else Wire[of.__name__.upper()]
    field = _field(Wire.ARRAY, versions, default, nullable=nullable, of=element, tag=tag)
    return cast("list[T] | None", field)


@overload
def struct(of: type[T], versions: str = ...) -> T: ...
@overload
def struct(
    of: type[T], versions: str = ..., *, nullable: str, default: Missing | None = ...
) -> T | None: ...
@overload
def struct(of: type[T], versions: str = ..., *, default: None, tag: int) -> T | None: ...
@overload
def struct(
    of: type[T], versions: str = ..., *, nullable: str, default: None, tag: int
) -> T | None: ...
def struct(
    of: type[T],
    versions: str = "0+",
    *,
    nullable: str = "",
    default: Missing | None = MISSING,
    tag: int | None = None,
) -> T | None:
    """One nested struct. None is null in the versions ``nullable``, "not sent" when tagged."""
    field = _field(Wire.STRUCT, versions, default, nullable=nullable, of=of, tag=tag)
    return cast("T | None", field)


@dataclass_transform(
    kw_only_default=True,
    field_specifiers=(
        boolean, int8, int16, int32, int64, uint16, uint32, float64, uuid,
        string, bytes_, records, array, struct,
    ),
)  # fmt: skip
class Table(type):
    """The metaclass of tables: turns the columns in a class body into slots."""

    FIELDS: dict[str, Field]
    NESTED: tuple[str, ...]
    """The names of fields that hold structs, or lists of structs, texts or bytes."""

    def __new__(
        cls, name: str, bases: tuple[type, ...], body: dict[str, object], **options: object
    ) -> "Table":
        """Build the class; ``options`` go to ``__init_subclass__``."""
        fields = {key: value for key, value in body.items() if isinstance(value, Field)}
        kept = {key: value for key, value in body.items() if key not in fields}
        kept["__slots__"] = tuple(fields)
        kept["FIELDS"] = fields
        kept["NESTED"] = tuple(
            key
            for key, field in fields.items()
            if field.wire is Wire.STRUCT
            or (field.wire is Wire.ARRAY and field.of not in FIXED_WIDTH_BYTES)
        )
        return super().__new__(cls, name, bases, kept, **options)


class Struct(metaclass=Table):
    """A part of a message. Mutable, compared by value; its constructor takes keywords only."""

    FIELDS: ClassVar[dict[str, Field]]
    NESTED: ClassVar[tuple[str, ...]]
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, **values: object) -> None:
        # The constructor is compiled on first use: one process uses few of the tables.
        cls = type(self)
        constructor = compile_constructor(cls)
        cls.__init__ = constructor  # type: ignore[method-assign]
        constructor(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.FIELDS)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.FIELDS)
        return f"{type(self).__name__}({values})"


class Message(Struct):
    """A request or a response: a table with an API key and a range of versions."""

    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[Versions]
    FLEXIBLE: ClassVar[Versions]
    _encoders: ClassVar[dict[int, Callable[..., None]]]
    _decoders: ClassVar[dict[int, Callable[..., tuple[object, int]]]]

    def __init_subclass__(
        cls, *, api_key: int = -1, versions: str = "0", flexible: str = ""
    ) -> None:
        super().__init_subclass__()
        cls.API_KEY = api_key
        cls.VERSIONS = Versions.parse(versions)
        cls.FLEXIBLE = Versions.parse(flexible)
        cls._encoders = {}
        cls._decoders = {}

    @classmethod
    def encoder(cls, version: int) -> Callable[[Self, bytearray, Splices], None]:
        """Return ``encode(message, out, splices)``; see ``encode_into``. Hot paths keep it."""
        encoder = cls._encoders.get(version)
        if encoder is None:
            cls._check(version)
            encoder = compile_encoder(cls, version, flexible=version in cls.FLEXIBLE)
            cls._encoders[version] = encoder
        return encoder

    @classmethod
    def decoder(cls, version: int) -> Callable[[memoryview, int, int], tuple[Self, int]]:
        """Return ``decode(buffer, position, end) -> (message, position after it)``.

        It raises nothing but MalformedMessage; ``records`` are slices of ``buffer``. Hot paths keep
        it.
        """
        decoder = cls._decoders.get(version)
        if decoder is None:
            cls._check(version)
            decoder = compile_decoder(cls, version, flexible=version in cls.FLEXIBLE)
            cls._decoders[version] = decoder
        return cast("Callable[[memoryview, int, int], tuple[Self, int]]", decoder)

    @classmethod
    def step_encoder(cls, version: int) -> Callable[[Self, bytearray, Splices], Steps[None]]:
        """Return an encoder that is a generator and yields now and then, for long answers.

        The message must not change meanwhile.
        """
        cls._check(version)
        return compile_encoder(cls, version, flexible=version in cls.FLEXIBLE, in_steps=True)

    @classmethod
    def step_decoder(
        cls, version: int
    ) -> Callable[[memoryview, int, int], Steps[tuple[Self, int]]]:
        """Return a decoder that is a generator and yields now and then, for long requests.

        The buffer must not change meanwhile.
        """
        cls._check(version)
        return compile_decoder(cls, version, flexible=version in cls.FLEXIBLE, in_steps=True)

    @classmethod
    def _check(cls, version: int) -> None:
        if version not in cls.VERSIONS:
            why = f"{cls.__name__} v{version}, expected {cls.VERSIONS}"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, why)

    def encode(self, version: int) -> bytes:
        """Return the encoded message in one piece. Blocks if its records are in a file."""
        out = bytearray()
        splices: Splices = []
        self.encoder(version)(self, out, splices)
        return join_splices(out, splices)

    @classmethod
    def decode(cls, data: bytes | memoryview, version: int, *, strict: bool = False) -> Self:
        """Return the message that ``data`` begins with.

        Bytes after the message are ignored, as in Kafka, unless ``strict``. Raises
        MalformedMessage; KafkaError (UNSUPPORTED_VERSION) for a version that the table lacks.
        """
        message, position = cls.decoder(version)(memoryview(data), 0, len(data))
        if strict and position != len(data):
            left = len(data) - position
            raise MalformedMessage(f"{cls.__name__} v{version}: {left} bytes left over")
        return message


def freed(holder: list[Message]) -> Steps[None]:
    """Take the one message out of ``holder`` and free it in steps.

    Freeing 200,000 parts at once takes a tenth of a second. Parts that somebody else refers to are
    not changed.
    """
    parts: list[object] = [holder.pop()]
    left = FREED_AT_A_TIME
    for part in parts:  # The list grows meanwhile: each part comes after the one that holds it.
        left -= 1
        if not left:
            left = FREED_AT_A_TIME
            yield
        for name in getattr(type(part), "NESTED", ()):
            inner = getattr(part, name)
            if isinstance(inner, list):
                parts += inner
            elif inner is not None:
                parts.append(inner)
    part = None
    parts.reverse()  # Inner parts go last, so no part frees many others when it goes.
    while parts:
        del parts[-FREED_AT_A_TIME:]
        yield


def encode_into(message: Message, version: int, out: bytearray, splices: Splices) -> None:
    """Append the encoded message to ``out``, without large records and records in files.

    These go into ``splices``, in order, so that the connection can send them without a copy.
    """
    message.encoder(version)(message, out, splices)


__all__ = [
    "Message", "RecordBytes", "Splice", "Splices", "Struct", "array", "boolean", "bytes_",
    "encode_into", "float64", "freed", "int8", "int16", "int32", "int64", "records", "string",
    "struct", "uint16", "uint32", "uuid",
]  # fmt: skip
