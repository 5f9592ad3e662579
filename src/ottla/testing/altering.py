"""Answers that are true but for one thing: a throttle time, or a batch whose checksum is wrong.

On framed answers, as they leave the router. Records that lie in a file are read for it, which
blocks: for tests only. Knows no rule and no connection.
"""

from ottla.handlers.call import Answer
from ottla.protocol.apis import API_TABLE, ApiKey
from ottla.protocol.header import RequestHeader, decode_response_header, encode_response_header
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.primitives import RecordBytes, Splice
from ottla.protocol.schema import Message

LENGTH_BYTES = 4
THROTTLE_FIELD = "throttle_time_ms"
BATCH_LENGTH_POSITION, BATCH_LENGTH_END = 8, 12


def framed(header: RequestHeader, answer: Message) -> Answer:
    """Return an answer as bytes, with its head."""
    head = encode_response_header(header.api_key, header.api_version, header.correlation_id)
    body = head + answer.encode(header.api_version)
    return [len(body).to_bytes(LENGTH_BYTES, "big") + body]


def throttled(answer: Answer, header: RequestHeader, seconds: float) -> Answer:
    """Return the answer with a throttle time; as it is if its version has none."""
    data, version = _joined(answer), header.api_version
    table = API_TABLE[ApiKey(header.api_key)].response
    field = table.FIELDS.get(THROTTLE_FIELD)
    if field is None or version not in field.versions:
        return answer
    message, _ = table.decoder(version)(memoryview(data), _begin(data, header), len(data))
    setattr(message, THROTTLE_FIELD, round(seconds * 1000))
    return framed(header, message)


def corrupted(answer: Answer, header: RequestHeader) -> Answer | None:
    """Return a Fetch's answer in which each partition's first batch is damaged, in its last byte.

    None: it has no records.
    """
    data = _joined(answer)
    view = memoryview(data)
    message, _ = FetchResponse.decoder(header.api_version)(view, _begin(data, header), len(data))
    assert isinstance(message, FetchResponse), "decoded by its table"
    is_struck = False
    for topic in message.responses:
        for each in topic.partitions:
            records = bytearray(_bytes(each.records))
            if len(records) < BATCH_LENGTH_END:
                continue
            length = int.from_bytes(records[BATCH_LENGTH_POSITION:BATCH_LENGTH_END], "big")
            last = BATCH_LENGTH_END + length - 1
            if last < len(records):
                records[last] ^= 1
                each.records, is_struck = bytes(records), True
    return framed(header, message) if is_struck else None


def _joined(answer: Answer) -> bytes:
    return b"".join(map(_bytes, answer))


def _bytes(piece: RecordBytes | Splice | None) -> RecordBytes:
    if piece is None or isinstance(piece, RecordBytes):
        return piece or b""
    return piece.read()


def _begin(data: bytes | bytearray, header: RequestHeader) -> int:
    """Return where the body begins."""
    _, position = decode_response_header(
        memoryview(data), LENGTH_BYTES, len(data),
        api_key=header.api_key, api_version=header.api_version,
    )  # fmt: skip
    return position
