"""A blocking wire client that can also say what no honest client says.

Owns framing, correlation ids and record batch v2 building for the tests and campaigns; messages
are encoded and decoded by kio, an oracle that shares no code with the broker. Knows nothing of
the broker's inside. Needs the dev extra (kio, crc32c).
"""

import dataclasses
import datetime as dt
import importlib
import io
import socket
import struct
import time
import typing
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Self

import crc32c
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

NULL_UUID = uuid.UUID(int=0)
LED_ELSEWHERE = 6
"""The code NOT_LEADER_OR_FOLLOWER."""
BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")
"""base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base and max
timestamp, producer id,
producer epoch, base sequence, count."""

BATCH_FIELDS = (
    *("base_offset", "length", "leader_epoch", "magic", "crc", "attributes"),
    *("last_offset_delta", "base_timestamp", "max_timestamp", "producer_id"),
    *("producer_epoch", "base_sequence", "count"),
)


class Closed(ConnectionError):
    """The broker closed the connection instead of answering."""


def varint(number: int) -> bytes:
    """Return ``number`` as a zigzag varint."""
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def record(
    offset_delta: int, value: bytes | None, key: bytes | None = None, *, timestamp_delta: int = 0
) -> bytes:
    """Return one record of a v2 batch, length included, without headers."""
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta)
    for part in (key, value):
        body += varint(-1) if part is None else varint(len(part)) + part
    body += b"\0"
    return varint(len(body)) + body


def batch(  # noqa: PLR0913 - one for each field of the header
    values: Iterable[bytes | None] = (b"value",),
    *,
    keys: Iterable[bytes | None] | None = None,
    payload: bytes | None = None,
    base_offset: int = 0,
    length: int | None = None,
    leader_epoch: int = -1,
    magic: int = 2,
    crc: int | None = None,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    base_timestamp: int = 1_700_000_000_000,
    max_timestamp: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    count: int | None = None,
    timestamp_step_ms: int = 0,
) -> bytes:
    """Return one record batch v2; any field given replaces the honest one.

    The CRC covers the lies, unless it is given.
    """
    values = list(values)
    keys = list(keys) if keys is not None else [None] * len(values)
    if payload is None:
        payload = b"".join(
            record(delta, value, key, timestamp_delta=delta * timestamp_step_ms)
            for delta, (value, key) in enumerate(zip(values, keys, strict=True))
        )
    newest = base_timestamp + max(len(values) - 1, 0) * timestamp_step_ms
    tail = struct.pack(
        ">hiqqqhii",
        attributes,
        len(values) - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        newest if max_timestamp is None else max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(values) if count is None else count,
    )
    tail += payload
    checksum = crc32c.crc32c(tail) if crc is None else crc
    size = 9 + len(tail) if length is None else length
    return struct.pack(">qiibI", base_offset, size, leader_epoch, magic, checksum) + tail


def batches(records: bytes | None) -> list[dict[str, Any]]:
    """Return the header fields and payload of each whole batch in ``records``.

    Raises ValueError for a batch that is shorter than its own header says it must be.
    """
    found = []
    position = 0
    data = records or b""
    while position + BATCH_HEADER.size <= len(data):
        header = dict(zip(BATCH_FIELDS, BATCH_HEADER.unpack_from(data, position), strict=True))
        end = position + 12 + header["length"]
        if end < position + BATCH_HEADER.size:
            raise ValueError(f"a batch of {header['length']} bytes at {position}")
        if end > len(data):
            break
        header["payload"] = data[position + BATCH_HEADER.size : end]
        header["crc_ok"] = crc32c.crc32c(data[position + 21 : end]) == header["crc"]
        found.append(header)
        position = end
    return found


def values_of(records: bytes | None) -> list[tuple[int, bytes | None]]:
    """Return (offset, value) of every record in the whole, uncompressed batches of ``records``."""
    return [
        (offset, value) for header in batches(records) for offset, _, value in records_of(header)
    ]


def records_of(header: Mapping[str, Any]) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return (offset, key, value) of every record of an uncompressed batch of ``batches``."""
    out: list[tuple[int, bytes | None, bytes | None]] = []
    data = header["payload"]
    position = 0
    for _ in range(header["count"]):
        _, position = read_varint(data, position)
        position += 1
        _, position = read_varint(data, position)
        delta, position = read_varint(data, position)
        found: list[bytes | None] = []
        for _ in ("key", "value"):
            size, position = read_varint(data, position)
            found.append(None if size < 0 else data[position : position + size])
            position += max(size, 0)
        header_count, position = read_varint(data, position)
        for _ in range(2 * header_count):
            size, position = read_varint(data, position)
            position += max(size, 0)
        out.append((header["base_offset"] + delta, found[0], found[1]))
    return out


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the zigzag number at ``position``, and where it ends."""
    shift = raw = 0
    while True:
        byte = data[position]
        position += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7


def _zero(kafka_type: str) -> Any:
    if kafka_type in ("string", "bytes"):
        return "" if kafka_type == "string" else b""
    if kafka_type == "uuid":
        return None
    if kafka_type == "bool":
        return False
    if kafka_type.startswith("timedelta"):
        return dt.timedelta(0)
    return 0


def build(schema: type[Any], fields: Mapping[str, Any]) -> Any:
    """Return kio's ``schema`` filled from dicts, lists and ints; the rest is default or empty.

    kio drops ``_ms`` from time fields and wants timedelta; both are forgiven here.
    """
    hints = typing.get_type_hints(schema)
    given = dict(fields)
    arguments: dict[str, Any] = {}
    for field in dataclasses.fields(schema):
        kafka_type = field.metadata.get("kafka_type", "")
        for name in (field.name, field.name + "_ms"):
            if name in given:
                arguments[field.name] = _convert(hints[field.name], kafka_type, given.pop(name))
                break
        else:
            if (
                field.default is dataclasses.MISSING
                and field.default_factory is dataclasses.MISSING
            ):
                is_array = "tuple" in str(hints[field.name])
                arguments[field.name] = () if is_array else _zero(kafka_type)
    if given:
        raise TypeError(f"{schema.__module__}.{schema.__name__} has no field {sorted(given)}")
    return schema(**arguments)


def _convert(hint: Any, kafka_type: str, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, int) and kafka_type.startswith("timedelta"):
        return dt.timedelta(milliseconds=value)
    if isinstance(value, bytes) and kafka_type == "uuid":
        return uuid.UUID(bytes=value)
    if isinstance(value, list | tuple):
        inner = _nested(hint)
        return tuple(
            build(inner, item) if isinstance(item, Mapping) and inner else item for item in value
        )
    if isinstance(value, Mapping):
        inner = _nested(hint)
        return build(inner, value) if inner else value
    return value


def _nested(hint: Any) -> type[Any] | None:
    if dataclasses.is_dataclass(hint):
        return typing.cast("type[Any]", hint)
    for argument in typing.get_args(hint):
        found = _nested(argument)
        if found is not None:
            return found
    return None


def plain(value: Any) -> Any:
    """Return a decoded kio message as dicts, lists, ints (times in ms), str, bytes, UUID."""
    if dataclasses.is_dataclass(value):
        return {
            field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, dt.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, dt.datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, bool) or value is None or isinstance(value, uuid.UUID):
        return value
    if isinstance(value, bytes | float):
        return value
    for kind in (int, str):  # Plain ones, of what kio derives from them.
        if isinstance(value, kind):
            return kind(value)
    return value


def _api(api: str, version: int) -> tuple[type[Any], type[Any], int]:
    request = _schema(api, version, EntityType.request)
    response = _schema(api, version, EntityType.response)
    return request, response, request.__api_key__


def _schema(api: str, version: int, kind: EntityType) -> type[Any]:
    module = importlib.import_module(f"kio.schema.{api}.v{version}.{kind.name}")
    name = "".join(part.capitalize() for part in api.split("_")) + kind.name.capitalize()
    return typing.cast("type[Any]", getattr(module, name))


CREATION_SECONDS = 60
"""For a topic to be there; one of a thousand partitions takes more than ten on a busy machine."""


class WireClient:
    """One connection to a broker: ``call`` for honest requests, ``send`` for the others.

    Blocks, at most ``timeout_seconds`` in one socket call. A context manager.
    """

    def __init__(
        self, bootstrap: str, *, timeout_seconds: float = 20.0, client_id: str = "wire"
    ) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send raw bytes."""
        try:
            self.socket.sendall(data)
        except (ConnectionResetError, BrokenPipeError) as error:
            raise Closed(str(error)) from error

    def send_frame(self, body: bytes) -> None:
        """Send ``body`` behind its honest length."""
        self.send(struct.pack(">i", len(body)) + body)

    def receive(self, size: int) -> bytes:
        """Return exactly ``size`` bytes. Raises Closed at the end, TimeoutError when silent."""
        data = bytearray()
        while len(data) < size:
            try:
                piece = self.socket.recv(min(size - len(data), 1 << 20))
            except (ConnectionResetError, BrokenPipeError) as error:
                raise Closed(str(error)) from error
            if not piece:
                raise Closed(f"closed after {len(data)} of {size} bytes")
            data += piece
        return bytes(data)

    def receive_frame(self) -> bytes:
        """Return the next frame without its length."""
        return self.receive(struct.unpack(">i", self.receive(4))[0])

    def is_closed_by_peer(self, *, within_seconds: float = 5.0) -> bool:
        """Tell whether the broker closes in time; what it still sends before is thrown away."""
        self.socket.settimeout(within_seconds)
        try:
            while self.socket.recv(1 << 16):
                pass
        except TimeoutError:
            return False
        except (ConnectionResetError, BrokenPipeError):
            return True
        return True

    def encode(self, api: str, version: int, /, **fields: Any) -> bytes:
        """Return header and body of a request, with the next correlation id, without the length."""
        request, _, key = _api(api, version)
        self._correlation_id += 1
        header_fields: dict[str, Any] = {
            "request_api_key": key,
            "request_api_version": version,
            "correlation_id": self._correlation_id,
        }
        header_schema = request.__header_schema__
        if any(field.name == "client_id" for field in dataclasses.fields(header_schema)):
            header_fields["client_id"] = self._client_id
        out = io.BytesIO()
        entity_writer(header_schema)(out, build(header_schema, header_fields))
        entity_writer(request)(out, build(request, fields))
        return out.getvalue()

    def decode(self, api: str, version: int, frame: bytes) -> dict[str, Any]:
        """Return a response frame's body, with ``correlation_id``; asserts nothing is left over."""
        _, response, _ = _api(api, version)
        header, position = entity_reader(response.__header_schema__)(frame, 0)
        body, size = entity_reader(response)(frame, position)
        if position + size != len(frame):
            raise AssertionError(
                f"{len(frame) - position - size} bytes left over in {api} v{version}: {frame!r}"
            )
        return {**plain(body), "correlation_id": int(header.correlation_id)}

    def call(self, api: str, version: int, /, **fields: Any) -> dict[str, Any]:
        """Send one request and return its response as plain dicts. Raises Closed."""
        self.send_frame(self.encode(api, version, **fields))
        return self.decode(api, version, self.receive_frame())

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> uuid.UUID:
        """Create a topic, wait until its partitions are served by their leaders, return its id.

        Raises TimeoutError when they are not after a minute.
        """
        patience = self.socket.gettimeout()
        self.socket.settimeout(CREATION_SECONDS + 10)
        answer = self.call(
            "create_topics",
            7,
            topics=[
                {
                    "name": name,
                    "num_partitions": partitions,
                    "replication_factor": 1,
                    "configs": [
                        {"name": key.replace("_", "."), "value": value}
                        for key, value in configs.items()
                    ],
                }
            ],
            timeout=CREATION_SECONDS * 1000,
        )
        self.socket.settimeout(patience)
        topic = answer["topics"][0]
        if topic["error_code"] != 0:
            raise AssertionError(f"cannot create {name}: {topic}")
        deadline = time.monotonic() + CREATION_SECONDS
        waiting = list(range(partitions))
        while True:
            offsets = self.list_offsets(name, waiting)
            waiting = [p for p, (code, _) in zip(waiting, offsets, strict=True) if code]
            if all(code in {0, LED_ELSEWHERE} for code, _ in offsets) and self._are_served(
                name, waiting
            ):
                return typing.cast("uuid.UUID", topic["topic_id"])
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name}: {offsets}")

    def _are_served(self, topic: str, partitions: Iterable[int]) -> bool:
        """Tell whether other nodes, which lead these partitions, serve them."""
        wanted = set(partitions)
        if not wanted:
            return True
        answer = self.call("metadata", 9, topics=[{"name": topic}])
        addresses = {each["node_id"]: (each["host"], each["port"]) for each in answer["brokers"]}
        led: dict[tuple[str, int], list[int]] = {}
        for each in answer["topics"][0]["partitions"]:
            if each["partition_index"] in wanted:
                if each["leader_id"] not in addresses:
                    return False
                led.setdefault(addresses[each["leader_id"]], []).append(each["partition_index"])
        for (host, port), indexes in led.items():
            with WireClient(f"{host}:{port}") as leader:
                if any(code for code, _ in leader.list_offsets(topic, indexes)):
                    return False
        return True

    def list_offsets(
        self, topic: str, partitions: Iterable[int], timestamp: int = -1
    ) -> list[tuple[int, int]]:
        """Return (error code, offset) of each partition."""
        answer = self.call(
            "list_offsets",
            7,
            replica_id=-1,
            topics=[
                {
                    "name": topic,
                    "partitions": [
                        {"partition_index": p, "timestamp": timestamp} for p in partitions
                    ],
                }
            ],
        )
        return [
            (found["error_code"], found["offset"]) for found in answer["topics"][0]["partitions"]
        ]

    def produce(
        self,
        topic: str,
        records: bytes | None,
        partition: int = 0,
        *,
        acks: int = -1,
        version: int = 9,
        timeout: int = 10_000,
    ) -> dict[str, Any]:
        """Produce ready-made batches by name (versions 3-12); return the partition response."""
        answer = self.call(
            "produce",
            version,
            acks=acks,
            timeout=timeout,
            topic_data=[
                {"name": topic, "partition_data": [{"index": partition, "records": records}]}
            ],
        )
        return typing.cast("dict[str, Any]", answer["responses"][0]["partition_responses"][0])

    def fetch(
        self,
        topic: str,
        offset: int = 0,
        partition: int = 0,
        *,
        version: int = 12,
        max_bytes: int = 1 << 20,
        partition_max_bytes: int = 1 << 20,
        min_bytes: int = 1,
        max_wait: int = 500,
        **partition_fields: Any,
    ) -> dict[str, Any]:
        """Fetch one partition by name (versions 4-12), sessionless; return its partition."""
        session = {"session_id": 0, "session_epoch": -1} if version >= 7 else {}
        asked = {
            "partition": partition,
            "fetch_offset": offset,
            "partition_max_bytes": partition_max_bytes,
        }
        answer = self.call(
            "fetch",
            version,
            replica_id=-1,
            max_wait=max_wait,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            topics=[{"topic": topic, "partitions": [asked | partition_fields]}],
            **session,
        )
        return typing.cast("dict[str, Any]", answer["responses"][0]["partitions"][0])
