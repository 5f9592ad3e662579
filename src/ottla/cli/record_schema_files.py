"""``consume --decode avro:FILE`` and ``protobuf:FILE``: values by a schema in a file, no registry.

Owns how a file becomes a decoder. Values are bare: without the id that a registry's writers put in
front. A .proto file is compiled by protoc, if that is installed; what
``protoc --include_imports --descriptor_set_out=FILE`` writes needs nothing more.
"""

import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.descriptor_pool import DescriptorPool

Decode = Callable[[bytes], object]
PROTOC_SECONDS = 30


def file_decoder(kind: str, place: str) -> Decode:
    """Return what decodes by ``place``: an Avro FILE, or a Protobuf FILE or FILE:MESSAGE.

    Raises ValueError with what is wrong with it.
    """
    return _avro(place) if kind == "avro" else _protobuf(place)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error


def _avro(path: str) -> Decode:
    text = _read(path)
    try:
        import fastavro
        from fastavro.schema import SchemaParseException, UnknownType
    except ImportError as error:
        raise ValueError("fastavro is missing: pip install 'ottla[avro]'") from error
    try:
        schema = fastavro.parse_schema(json.loads(text))
    except (ValueError, TypeError, KeyError, SchemaParseException, UnknownType) as error:
        raise ValueError(f"{path} is no Avro schema: {error}") from error
    read = fastavro.schemaless_reader

    def decode(data: bytes) -> object:
        file = io.BytesIO(data)
        try:
            value: object = read(file, schema, None)
        except Exception as error:  # Whatever bytes of another kind bring about in there.
            raise ValueError(f"{type(error).__name__}: {error}") from error
        if left := len(data) - file.tell():
            raise ValueError(f"{left} bytes are left behind the value")
        return value

    return decode


def _protobuf(place: str) -> Decode:
    try:
        from google.protobuf.json_format import MessageToDict
        from google.protobuf.message import DecodeError
        from google.protobuf.message_factory import GetMessageClass
    except ImportError as error:
        raise ValueError("protobuf is missing: pip install 'ottla[protobuf]'") from error
    path, colon, name = place.rpartition(":")
    if not colon or Path(place).exists():
        path, name = place, ""
    pool, names = _pool(path)
    if not name and len(names) != 1:
        raise ValueError(f"which message? protobuf:{path}:MESSAGE, of {', '.join(names)}")
    try:
        message = GetMessageClass(pool.FindMessageTypeByName(name or names[0]))
    except KeyError as error:
        raise ValueError(f"{path} has no message {name}; it has {', '.join(names)}") from error

    def decode(data: bytes) -> object:
        found = message()
        try:
            found.ParseFromString(data)
        except DecodeError as error:
            raise ValueError(str(error)) from error
        return MessageToDict(found, preserving_proto_field_name=True)

    return decode


def _pool(path: str) -> tuple["DescriptorPool", list[str]]:
    """Return the types of a file, and the names of the messages of the last one in it."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import DecodeError

    data = _compiled(path) if path.endswith(".proto") else _read(path)
    files: Any = FileDescriptorSet()
    pool = DescriptorPool()
    try:
        files.ParseFromString(data)
        for each in files.file:  # A file stands behind those that it imports.
            pool.Add(each)
    except (DecodeError, TypeError) as error:
        raise ValueError(f"{path} is no set of descriptors: {error}") from error
    if not files.file:
        raise ValueError(f"{path} is no set of descriptors: it is empty")
    last = files.file[-1]
    package = f"{last.package}." if last.package else ""
    return pool, [package + each.name for each in last.message_type]


def _compiled(path: str) -> bytes:
    """Return what protoc makes of a .proto file. Raises ValueError."""
    _read(path)
    with TemporaryDirectory() as directory:
        out = Path(directory) / "descriptors"
        command = [
            *("protoc", "--include_imports", f"--descriptor_set_out={out}"),
            *(f"--proto_path={Path(path).parent}", path),
        ]
        try:
            done = subprocess.run(  # noqa: S603 - no shell; the file is the person's own
                command, capture_output=True, timeout=PROTOC_SECONDS, check=False
            )
        except FileNotFoundError as error:
            why = "protoc, which compiles it, is not installed"
            raise ValueError(f"{path}: {why}; give the file of --descriptor_set_out") from error
        except subprocess.TimeoutExpired as error:
            raise ValueError(f"{path}: protoc did not end") from error
        if done.returncode:
            raise ValueError(done.stderr.decode("utf-8", "replace").strip())
        return out.read_bytes()
