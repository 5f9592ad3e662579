"""kafka-python as a second vote, for the APIs it has: it reads our bytes and writes the same."""

import importlib
import pkgutil

import pytest
from hypothesis import given, settings

from ottla.protocol.apis import API_TABLE

pytestmark = pytest.mark.slow

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


def covered_versions(message):
    theirs = THEIRS.get(message.__name__)
    if theirs is None:
        return []
    return [v for v in message.VERSIONS if theirs.min_version <= v <= theirs.max_version]


COVERED = [
    message
    for api in API_TABLE.values()
    for message in (api.request, api.response)
    if covered_versions(message)
]


@pytest.mark.parametrize("covered", COVERED, ids=lambda message: message.__name__)
def test_agrees_with_kafka_python(covered, messages):
    for version in covered_versions(covered):
        check(covered, version, messages(covered, version))


def check(message, version, strategy):
    theirs = THEIRS[message.__name__]

    @settings(settings.get_profile("protocol"), max_examples=3)
    @given(strategy)
    def agrees(ours):
        if message.__name__ == "ApiVersionsResponse":
            ours.error_code = 0  # it takes an answer with any error for a v0, as a client must
        encoded = ours.encode(version)
        read = theirs.decode(encoded, version=version)
        read._header = None
        assert read.encode(version=version) == encoded, version

    agrees()


def test_kafka_python_covers_most_pairs(pairs, record_property):
    pair_count = sum(len(covered_versions(message)) for message in COVERED)
    record_property("message_version_pairs_kafka_python", pair_count)
    print(f"{pair_count} of {len(pairs)} pairs, {len(THEIRS)} classes in kafka-python")
    assert pair_count >= 400
