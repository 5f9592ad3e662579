"""kafka-python as a second vote, for the APIs it has: it reads our bytes and writes the same."""

import importlib
import pkgutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.apis import API_TABLE

kafka_protocol = pytest.importorskip("kafka.protocol")
api_message = pytest.importorskip("kafka.protocol.api_message")


def kafka_python_classes():
    found = {}
    for package in ("admin", "consumer", "metadata", "producer", "sasl"):
        module = importlib.import_module(f"kafka.protocol.{package}")
        names = [module.__name__]
        if hasattr(module, "__path__"):
            names += [
                f"{module.__name__}.{found.name}" for found in pkgutil.iter_modules(module.__path__)
            ]
        for name in names:
            for value in vars(importlib.import_module(name)).values():
                if isinstance(value, type) and issubclass(value, api_message.ApiMessage):
                    found[value.__name__] = value
    found.pop("ApiMessage", None)
    return found


THEIRS = kafka_python_classes()


PAIRS = [
    (message, version)
    for api in API_TABLE.values()
    for message in (api.request, api.response)
    for version in message.VERSIONS
    if message.__name__ in THEIRS
    and THEIRS[message.__name__].min_version <= version <= THEIRS[message.__name__].max_version
]


@pytest.mark.parametrize(
    ("ours_class", "number"), PAIRS, ids=[f"{message.__name__}-v{v}" for message, v in PAIRS]
)
def test_agrees_with_kafka_python(ours_class, number, messages):
    theirs = THEIRS[ours_class.__name__]

    @settings(settings.get_profile("protocol"), max_examples=4)
    @given(st.data())
    def agrees(data):
        ours = data.draw(messages(ours_class, number))
        if ours_class.__name__ == "ApiVersionsResponse":
            ours.error_code = 0  # it takes an answer with any error for a v0, as a client must
        encoded = ours.encode(number)
        read = theirs.decode(encoded, version=number)
        read._header = None
        assert read.encode(version=number) == encoded

    agrees()


def test_kafka_python_covers_most_pairs(pairs, record_property):
    record_property("message_version_pairs_kafka_python", len(PAIRS))
    print(f"{len(PAIRS)} of {len(pairs)} pairs, {len(THEIRS)} classes in kafka-python")
    assert len(PAIRS) >= 400
