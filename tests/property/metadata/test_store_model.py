"""Both stores against a dict, over random commits: entries, revisions, guards and watches agree."""

import asyncio
import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.env.clock import ManualClock
from ottla.env.executor import ThreadExecutor
from ottla.env.real_disk import RealDisk
from ottla.metadata.memory_store import MemoryStore
from ottla.metadata.sqlite_store import SqliteStore
from ottla.metadata.store import Delete, Entry, Guard, GuardFailed, Put

KEY = st.sampled_from(["a", "a/1", "a/2", "b", "b/1"])
REVISION = st.one_of(st.none(), st.integers(0, 6))
GUARD = st.builds(Guard, KEY, REVISION, REVISION)
OP = st.one_of(st.builds(Put, KEY, st.binary(max_size=3), st.just(0)), st.builds(Delete, KEY))
OPS = st.lists(OP, max_size=4, unique_by=lambda op: op.key)
COMMITS = st.lists(st.tuples(st.lists(GUARD, max_size=2), OPS), max_size=12)


class Model:
    """The contract in a few lines."""

    def __init__(self):
        self.entries = {}
        self.revision = 0
        self.history = []

    def holds(self, guard):
        found = self.entries.get(guard.key)
        revisions = (found.create_rev, found.mod_rev) if found else (0, 0)
        wanted = (guard.create_rev, guard.mod_rev)
        return all(want in (None, have) for want, have in zip(wanted, revisions, strict=True))

    def commit(self, guards, ops):
        if not all(map(self.holds, guards)):
            return None
        after, changes = dict(self.entries), []
        for op in ops:
            old = after.pop(op.key, None)
            if isinstance(op, Put):
                rev = self.revision + 1
                after[op.key] = Entry(op.key, op.value, old.create_rev if old else rev, rev)
                changes.append((op.key, after[op.key]))
            elif old:
                changes.append((op.key, None))
        if changes:
            self.revision += 1
            self.entries = after
            self.history.append((self.revision, changes))
        return self.revision


async def check(store, commits):
    model = Model()
    for guards, ops in commits:
        try:
            revision = await store.commit(guards, ops)
        except GuardFailed:
            revision = None
        assert revision == model.commit(guards, ops)
    for prefix in ("", "a", "a/", "c"):
        expected = [model.entries[key] for key in sorted(model.entries) if key.startswith(prefix)]
        assert await store.scan(prefix) == (expected, model.revision)
    seen = []
    async with asyncio.timeout(5):
        while len(seen) < model.revision:
            watch = store.watch("", len(seen) + 1)
            seen.append(await anext(watch))
            await watch.aclose()
    assert [
        (change_set.rev, [tuple(change) for change in change_set.changes]) for change_set in seen
    ] == (model.history)


@given(COMMITS)
def test_the_memory_store_is_a_dict_with_revisions(commits):
    asyncio.run(check(MemoryStore(ManualClock()), commits))


@settings(max_examples=10, deadline=None)
@given(COMMITS)
def test_the_sqlite_store_is_a_dict_with_revisions(commits):
    async def story(directory):
        executor = ThreadExecutor(1, "metadata")
        store = await SqliteStore.open(
            f"{directory}/metadata.db", disk=RealDisk(), clock=ManualClock(), executor=executor
        )
        try:
            await check(store, commits)
        finally:
            await store.close()
            executor.close()

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(story(directory))
