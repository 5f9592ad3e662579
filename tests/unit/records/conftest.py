"""The kernel in both its forms, and records written by hand, byte for byte."""

import importlib.util
from pathlib import Path

import pytest

import ottla.records
from ottla.records import kernels as imported_kernels


def load_interpreted():
    """Import the kernel's source file itself, whether or not the extension lies beside it."""
    path = Path(ottla.records.__path__[0]) / "kernels.py"
    spec = importlib.util.spec_from_file_location("interpreted_kernels", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=["compiled", "interpreted"])
def kernels(request):
    if request.param == "interpreted":
        return load_interpreted()
    if not imported_kernels.COMPILED:
        pytest.skip("the extension is not built: python setup.py build_ext --inplace")
    return imported_kernels


def varint(value):
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def field(data):
    return varint(-1) if data is None else varint(len(data)) + data


def raw_record(body):
    return varint(len(body)) + body


def record(index=0, *, key=b"k", value=b"v", timestamp=0, headers=()):
    """Return one record; ``headers`` are pairs of bytes."""
    body = b"\0" + varint(timestamp) + varint(index) + field(key) + field(value)
    body += varint(len(headers)) + b"".join(field(k) + field(v) for k, v in headers)
    return raw_record(body)


class Bytes:
    """The functions above, for tests to write broken records with."""

    varint = staticmethod(varint)
    field = staticmethod(field)
    record = staticmethod(record)
    raw_record = staticmethod(raw_record)


@pytest.fixture
def wire():
    return Bytes
