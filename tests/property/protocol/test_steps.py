"""The codecs in steps do as the ones at once, whatever the message."""

import pytest

from ottla.errors import MalformedMessage
from ottla.protocol.compiler import STEP_ELEMENTS
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.primitives import join_splices


def run(steps):
    """Return what the steps come to, and how many there were."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


def test_in_steps_as_at_once(message, each_version, full_message):
    for version in each_version(message):
        full = full_message(message, version)
        encoded = full.encode(version)
        out, splices = bytearray(), []
        run(message.step_encoder(version)(full, out, splices))
        assert join_splices(out, splices) == encoded
        decode = message.step_decoder(version)
        (decoded, end), _ = run(decode(memoryview(encoded), 0, len(encoded)))
        assert decoded == full
        assert end == len(encoded)
        for length in range(0, len(encoded), 5):
            with pytest.raises(MalformedMessage):
                run(decode(memoryview(encoded), 0, length))


def test_many_elements_are_many_steps():
    topics = [MetadataRequestTopic(name=f"t{number}") for number in range(10_000)]
    request = MetadataRequest(topics=topics)
    encoded = request.encode(12)
    (decoded, _), steps = run(
        MetadataRequest.step_decoder(12)(memoryview(encoded), 0, len(encoded))
    )
    assert decoded == request
    assert steps == 10_000 // STEP_ELEMENTS
    out = bytearray()
    assert run(MetadataRequest.step_encoder(12)(request, out, []))[1] == 10_000 // STEP_ELEMENTS
    assert out == encoded
