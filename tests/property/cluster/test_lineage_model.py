"""A node is refused when its metadata was restored to before its last stamp, and never else."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.cluster.lineage import Remembered, next_stamps, parted

ENDS = st.sampled_from(
    [
        "done",  # Both sides are stamped.
        "cut",  # The store is, and the node ended, or it never heard that it is.
        "lost",  # Neither is.
    ]
)


@given(ends=st.lists(ENDS, max_size=12), data=st.data())
def test_only_what_was_restored_is_refused(ends, data):
    known, remembered = (), None
    stores, directories = [known], [remembered]
    since = 0  # When the store has got the stamp that the directory has.
    for number, end in enumerate(ends):
        if end != "lost":
            known = next_stamps(remembered, known, f"token {number}")
        stores.append(known)
        if end == "done":
            remembered, since = Remembered(known[0]), len(stores) - 1
        directories.append(remembered)
        assert parted(remembered, known, 0) is None, "nothing was restored"
    restored = data.draw(st.integers(0, len(ends)), "the store is as it was")
    revision = data.draw(st.integers(0, 1 << 40), "it has other changes, or was bumped")
    is_refused = parted(remembered, stores[restored], revision) is not None
    assert is_refused == (restored < since and remembered is not None)
    copy = directories[data.draw(st.integers(0, len(ends)), "the directory is as it was")]
    is_refused = parted(copy, known, revision) is not None
    # The last but one may be that of a node that ended in between.
    assert is_refused == (copy is not None and copy.stamp not in known[:2])
