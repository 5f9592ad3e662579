"""The producers of a partition against a model that keeps every batch and searches all of them."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from ottla.errors import ErrorCode, KafkaError
from ottla.log.producers.snapshot import decode_snapshot, encode_snapshot
from ottla.log.producers.states import ProducerStates
from ottla.log.producers.transactions import ALL_STABLE
from ottla.records.batch import BatchHeader
from ottla.records.control import ControlType, EndTransactionMarker

pytestmark = pytest.mark.slow

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
        is_appended = outcome == end and not isinstance(outcome, ErrorCode)  # A code is a number.
        assert model.end == end + (count if is_appended else 0)


class TransactionsModel:
    """``written``: every batch and marker; all else is searched for in it, each time."""

    def __init__(self):
        self.written = []  # (producer id, epoch, sequences, first offset, transactional or marker)
        self.end = 0

    def own(self, producer_id):
        return [one for one in self.written if one[0] == producer_id]

    def open_since(self, producer_id):
        since = None
        for _, _, _, offset, what in self.own(producer_id):
            if isinstance(what, EndTransactionMarker):
                since = None
            elif what and since is None:
                since = offset
        return since

    def append(self, producer_id, epoch, sequence, count, transactional):
        sequences = [(sequence + n) % WRAP for n in range(count)]
        own = self.own(producer_id)
        if own:
            latest_epoch = own[-1][1]
            if epoch < latest_epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH
            current = [one for one in own if one[1] == epoch and one[2]]
            if epoch > latest_epoch:
                if sequence != 0:
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            else:
                expected = (current[-1][2][-1] + 1) % WRAP if current else 0
                if expected != sequence:
                    since = self.open_since(producer_id)
                    for one in current[-5:]:
                        is_ended = since is None or one[3] < since
                        if one[2] == sequences and not (transactional and is_ended):
                            return one[3]
                    remembered = {
                        number
                        for one in current[-5:]
                        for number in one[2]
                        if since is None or one[3] < since
                    }
                    # All before them are of the past, too. The model's sequences do not wrap.
                    if transactional and remembered and sequence <= max(remembered):
                        return ErrorCode.UNKNOWN_PRODUCER_ID
                    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            if self.open_since(producer_id) is not None and not transactional:
                return ErrorCode.INVALID_TXN_STATE
        self.written.append((producer_id, epoch, sequences, self.end, transactional))
        self.end += count
        return self.end - count

    def complete(self, producer_id, epoch, marker, version):
        own, since = self.own(producer_id), self.open_since(producer_id)
        if own:
            latest_epoch = own[-1][1]
            may_be_equal = version < 2 or since is None
            if epoch < latest_epoch or (epoch == latest_epoch and not may_be_equal):
                return ErrorCode.INVALID_PRODUCER_EPOCH
            markers = [one[4] for one in own if isinstance(one[4], EndTransactionMarker)]
            if markers and marker.coordinator_epoch < markers[-1].coordinator_epoch:
                return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        self.written.append((producer_id, epoch, [], self.end, marker))
        self.end += 1
        return since

    def first_unstable(self, high_watermark):
        """Go over all: what is open, and what ended at or above the high watermark."""
        found, since = [], {}
        for producer_id, _, _, offset, what in self.written:
            if isinstance(what, EndTransactionMarker):
                first = since.pop(producer_id, None)
                if first is not None and offset >= high_watermark:
                    found.append(first)
            elif what:
                since.setdefault(producer_id, offset)
        return min([*found, *since.values()], default=ALL_STABLE)


transactional_steps = st.lists(
    st.tuples(
        st.sampled_from(["next", "next", "any", "again", "marker", "marker", "restart"]),
        st.integers(0, 2),
        st.integers(0, 3),
        st.integers(0, 6),
        st.integers(1, 3),
        st.sampled_from([True, True, True, False]),
        st.integers(0, 2),
        st.sampled_from([0, 1, 2]),
        st.floats(0, 1),
    ),
    max_size=60,
)


@settings(max_examples=400, deadline=None)
@given(transactional_steps)
def test_both_agree_on_transactions_too(steps):
    states, model, high_watermark = ProducerStates(1000), TransactionsModel(), 0
    for kind, *drawn in steps:
        producer_id, epoch, sequence, count, flag, coordinator_epoch, version, share = drawn
        own = model.own(producer_id)
        if kind == "restart":
            loaded = decode_snapshot(encode_snapshot(states), 0)
            states, high_watermark = ProducerStates(1000), model.end
            states.load(loaded)
            states.transactions.commit_to(high_watermark)
            continue
        if kind != "any" and own:
            epoch = own[-1][1] + (kind == "marker" and version == 2)
            current = [one for one in own if one[1] == epoch and one[2]]
            sequence = (current[-1][2][-1] + 1) % WRAP if current else 0
            if kind == "again" and current:
                sequence, count = current[-1][2][0], len(current[-1][2])
        control = 0x20 if kind == "marker" else 0
        header = BatchHeader(
            0, 99, -1, 2, 0, 0x10 * flag | control, count - 1, 5, 5,
            producer_id, epoch, sequence, count,
        )  # fmt: skip
        end, refused = model.end, None
        if kind == "marker":
            word = ControlType.ABORT if flag else ControlType.COMMIT
            marker = EndTransactionMarker(word, coordinator_epoch)
            expected = model.complete(producer_id, epoch, marker, version)
            try:
                states.check_marker(header, marker, version)
            except KafkaError as error:
                refused = error.code
            if refused is not None:
                assert refused is expected
            else:
                ended = states.complete(header, marker, end, 5, 0)
                assert expected == (None if ended is None else ended.first_offset)
                if ended is not None:
                    assert ended == (producer_id, expected, end, flag)
                    stable = states.transactions.complete(ended)
                    opened = [model.open_since(each) for each in range(3)]
                    still = [offset for offset in opened if offset is not None]
                    assert stable == min(still, default=end + 1)
        else:
            expected = model.append(producer_id, epoch, sequence, count, flag)
            try:
                original = states.check(header, 0)
            except KafkaError as error:
                refused = error.code
            else:
                refused = end if original is None else original.first_offset
                if original is None:
                    states.update(header, end + count - 1, 5, 0)
            assert refused == expected
        for each in range(3):
            state, since = states.get(each), model.open_since(each)
            assert (since is None) or state.current_transaction_first_offset == since
            assert states.has_open_transaction(each, state.epoch if state else 0) == (
                since is not None
            )
        if share > 0.5:
            high_watermark += int((share - 0.5) * 2 * (model.end - high_watermark))
            states.transactions.commit_to(high_watermark)
            assert states.transactions.first_unstable_offset == model.first_unstable(high_watermark)
