"""A log directory is judged by the generation in it, and by those that the store knows."""

import pytest

from ottla.cluster.generations import Judgement, judge
from ottla.cluster.lineage import Remembered
from ottla.metadata.values import (
    Stamp,
    UnreadableValue,
    decode_generations,
    encode_generations,
)

FOURTH, FIFTH, SIXTH = (Stamp(number, f"{number}" * 32) for number in (4, 5, 6))


@pytest.mark.parametrize(
    ("found", "known", "judgement"),
    [
        (FIFTH, [FIFTH], Judgement.NEWEST),
        (FIFTH, [SIXTH, FIFTH], Judgement.NEWEST),
        (SIXTH, [SIXTH, FIFTH], Judgement.NEWEST),
        (None, [], Judgement.NEWEST),
        (FIFTH, [], Judgement.NEWEST),
        (FIFTH, [SIXTH], Judgement.OLD_COPY),
        (FOURTH, [SIXTH, FIFTH], Judgement.OLD_COPY),
        (None, [FOURTH], Judgement.OLD_COPY),
        (SIXTH, [FIFTH], Judgement.OLDER_METADATA),
        (Stamp(5, "x" * 32), [FIFTH], Judgement.OLDER_METADATA),
    ],
)
def test_a_directory_is_judged(found, known, judgement):
    remembered = None if found is None else Remembered(found)
    assert judge(remembered, known) is judgement


def test_generations_are_read_as_they_were_written():
    given = {"an-id": (SIXTH, FIFTH), "another": ()}
    assert decode_generations(encode_generations(given)) == given


@pytest.mark.parametrize("value", [b'{"v":1}', b'{"v":1,"generations":{"a":[[1]]}}'])
def test_other_values_are_refused(value):
    with pytest.raises(UnreadableValue, match="generations: expected"):
        decode_generations(value)
