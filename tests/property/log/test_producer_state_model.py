"""The producers of a partition against a model that keeps every batch and searches all of them."""

import hypothesis.strategies as st
from hypothesis import given, settings

from ottla.errors import ErrorCode, KafkaError
from ottla.log.producer_snapshot import decode_snapshot, encode_snapshot
from ottla.log.producer_state import ProducerStates
from ottla.records.batch import BatchHeader

WRAP = 2**31


class Model:
    """``written``: every batch that was appended, as (id, epoch, sequences, offsets)."""

    def __init__(self):
        self.written = []
        self.end = 0

    def append(self, producer_id, epoch, sequence, count):
        """Return the offset of the first record, or the error."""
        sequences = [(sequence + n) % WRAP for n in range(count)]
        own = [batch for batch in self.written if batch[0] == producer_id]
        if own:
            latest_epoch = own[-1][1]
            if epoch < latest_epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH
            if epoch > latest_epoch:
                if sequence != 0:
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            else:
                current = [batch for batch in own if batch[1] == epoch]
                for batch in current[-5:]:
                    if batch[2] == sequences:
                        return batch[3]
                if (current[-1][2][-1] + 1) % WRAP != sequence:
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self.written.append((producer_id, epoch, sequences, self.end))
        self.end += count
        return self.end - count


steps = st.lists(
    st.tuples(
        st.sampled_from(["next", "again", "any", "restart"]),
        st.integers(0, 2),
        st.integers(0, 2),
        st.one_of(st.integers(0, 12), st.integers(WRAP - 4, WRAP - 1)),
        st.integers(1, 4),
        st.integers(1, 7),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(steps)
def test_both_answer_the_same_whatever_comes_also_through_a_snapshot(steps):
    states, model, sent = ProducerStates(1000), Model(), []
    for kind, *drawn, back in steps:
        if kind == "restart":
            loaded = decode_snapshot(encode_snapshot(states), 0)
            states = ProducerStates(1000)
            states.load(loaded)
            continue
        batch = tuple(drawn)
        own = [batch for batch in model.written if batch[0] == drawn[0]]
        if kind == "next" and own:
            batch = (drawn[0], own[-1][1], (own[-1][2][-1] + 1) % WRAP, drawn[3])
        elif kind == "again" and len(sent) >= back:
            batch = sent[-back]
        sent.append(batch)
        producer_id, epoch, sequence, count = batch
        header = BatchHeader(
            0, 99, -1, 2, 0, 0, count - 1, 5, 5, producer_id, epoch, sequence, count
        )
        end = model.end
        expected = model.append(*batch)
        try:
            original = states.check(header, 0)
        except KafkaError as error:
            outcome = error.code
        else:
            outcome = end if original is None else original.first_offset
            if original is None:
                states.update(header, end + count - 1, 5, 0)
        assert outcome == expected
        assert model.end == end + (count if outcome == end else 0)
