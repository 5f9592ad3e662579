"""Every (message, version) of the API table, and ways to make instances of them from the tables."""

from collections.abc import Callable, Iterator
from functools import cache

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ottla.errors import ErrorCode
from ottla.protocol.apis import API_TABLE
from ottla.protocol.fields import Field, Wire
from ottla.protocol.schema import Message, Struct

settings.register_profile(
    "protocol",
    max_examples=4,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

PAIRS = [
    (message, version)
    for api in API_TABLE.values()
    for message in (api.request, api.response)
    for version in message.VERSIONS
]

INTEGER_BITS = {
    Wire.INT8: 8,
    Wire.INT16: 16,
    Wire.INT32: 32,
    Wire.INT64: 64,
}
INTEGERS = {
    wire: st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for wire, bits in INTEGER_BITS.items()
}
SIMPLE = {
    **INTEGERS,
    Wire.BOOLEAN: st.booleans(),
    Wire.UINT16: st.integers(0, 0xFFFF),
    Wire.UINT32: st.integers(0, 0xFFFFFFFF),
    Wire.FLOAT64: st.floats(allow_nan=False),
    Wire.UUID: st.sampled_from([bytes(16), bytes(range(16)), b"\xff" * 16]),
    Wire.STRING: st.text(max_size=4),
    Wire.BYTES: st.binary(max_size=4),
    Wire.RECORDS: st.binary(max_size=140),
}
SAMPLES = {
    **dict.fromkeys(INTEGERS, 1),
    Wire.BOOLEAN: True,
    Wire.UINT16: 0xFFFF,
    Wire.UINT32: 0xFFFFFFFF,
    Wire.FLOAT64: 0.5,
    Wire.UUID: bytes(range(16)),
    Wire.STRING: "zürich",
    Wire.BYTES: b"\x00bytes",
    Wire.RECORDS: b"records" * 20,
}
ERROR_CODES = st.sampled_from(list(ErrorCode)).map(int)
INSTANTS_MS = st.integers(0, 4_102_444_800_000)  # until 2100: kio makes datetimes of them


def of_field(name: str, field: Field, version: int) -> SearchStrategy[object]:
    if field.wire is Wire.ARRAY:
        element = field.of
        one = SIMPLE[element] if isinstance(element, Wire) else of_struct(element, version)
        values = st.lists(one, max_size=2)
    elif field.wire is Wire.STRUCT:
        values = of_struct(field.of, version)
    elif field.wire is Wire.INT16 and name.endswith("error_code"):
        values = ERROR_CODES
    elif field.wire is Wire.INT64 and name.endswith("_ms"):
        values = INSTANTS_MS
    else:
        values = SIMPLE[field.wire]
    if field.wire is Wire.STRUCT and field.tag is not None:
        # Others leave a tagged struct out when all of it is default; ours when it is None.
        return st.none() | values.filter(lambda value: value != type(value)())
    return st.none() | values if version in field.nullable else values


@cache
def of_struct(table: type[Struct], version: int) -> SearchStrategy[Struct]:
    return st.builds(
        table,
        **{
            name: of_field(name, field, version)
            for name, field in table.FIELDS.items()
            if version in field.versions
        },
    )


@cache
def full_struct(table: type[Struct], version: int) -> Struct:
    """One instance with every field set, every list holding two elements."""
    values = {}
    for name, field in table.FIELDS.items():
        if version not in field.versions:
            continue
        if field.wire is Wire.ARRAY:
            element = field.of
            is_simple = isinstance(element, Wire)
            values[name] = [SAMPLES[element] if is_simple else full_struct(element, version)] * 2
        elif field.wire is Wire.STRUCT:
            values[name] = full_struct(field.of, version)
        else:
            values[name] = SAMPLES[field.wire]
    return table(**values)


@pytest.fixture(scope="session")
def messages() -> Callable[[type[Message], int], SearchStrategy[Message]]:
    """Return the strategy for the instances of a message in a version."""
    return of_struct


@pytest.fixture(scope="session")
def full_message() -> Callable[[type[Message], int], Message]:
    """Return the instance of a message with everything in it that a version has."""
    return full_struct


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "message" in metafunc.fixturenames:
        everything = list(dict.fromkeys(message for message, _ in PAIRS))
        metafunc.parametrize("message", everything, ids=lambda message: message.__name__)


@pytest.fixture
def each_version() -> Iterator[Callable[[type[Message]], Iterator[int]]]:
    """Walk through the versions of a message; what is printed at the end goes with a failure.

    One test per message instead of one per version: five thousand tests cost more than they do.
    """
    reached = []

    def walk(message: type[Message]) -> Iterator[int]:
        for version in message.VERSIONS:
            reached[:] = [f"{message.__name__} v{version}"]
            yield version

    yield walk
    print("the last one was", *reached)


@pytest.fixture(scope="session")
def pairs() -> list[tuple[type[Message], int]]:
    return PAIRS
