"""Record batches as a broker would send them, and a client that hands them out."""

from struct import pack

import pytest

from ottla.client.fetching import FetchedPartition
from ottla.errors import ErrorCode
from ottla.records.batch import batch_crc


def _varint(value):
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def _bytes(data):
    return _varint(-1) if data is None else _varint(len(data)) + data


def make_batch(base_offset, values, *, attributes=0, timestamp=1000, key=b"k", headers=()):
    """Return one uncompressed RecordBatch v2."""
    records = b""
    for index, value in enumerate(values):
        body = b"\0" + _varint(index) + _varint(index) + _bytes(key) + _bytes(value)
        body += _varint(len(headers)) + b"".join(_bytes(k) + _bytes(v) for k, v in headers)
        records += _varint(len(body)) + body
    last = len(values) - 1
    tail = pack(">hiqqqhii", attributes, last, timestamp, timestamp + last, -1, -1, -1, len(values))
    tail += records
    head = pack(">qiibI", base_offset, len(tail) + 9, 0, 2, 0)
    crc = batch_crc(memoryview(head + tail))
    return head[:17] + pack(">I", crc) + tail


class ScriptedClient:
    """Answers each fetch with the next of its answers, and remembers what was asked."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    def fetch(self, offsets, _limits):
        ((partition, offset),) = offsets.items()
        self.asked.append(offset)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        error, records = answer if isinstance(answer, tuple) else (ErrorCode.NONE, answer)
        return {partition: FetchedPartition(error, 100, 100, 0, memoryview(records), ())}

    def earliest_offsets(self, partitions):
        return dict.fromkeys(partitions, 42)


@pytest.fixture
def batch():
    return make_batch


@pytest.fixture
def scripted_client():
    return ScriptedClient
