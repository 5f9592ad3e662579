"""What a store in etcd does and others never have to: its members end, stand still, and go back."""

import asyncio
import shutil
from contextlib import asynccontextmanager

import pytest

from ottla.env.clock import SystemClock
from ottla.metadata.etcd import watching, wire
from ottla.metadata.etcd.members import Members, Security, _metadata
from ottla.metadata.etcd.store import PAGE_KEYS, EtcdStore
from ottla.metadata.etcd.watching import CHANGES_PER_TURN
from ottla.metadata.mirror import Mirror
from ottla.metadata.store import (
    OPS_MAX,
    Ambiguous,
    ChangeSet,
    Compacted,
    Delete,
    Guard,
    Put,
    SessionState,
    Unavailable,
)
from tests.certificates import openssl
from tests.etcd_server import Etcd, free_ports, needs_etcd, open_store, until

pytestmark = needs_etcd


@pytest.fixture
def etcd(tmp_path):
    etcd = Etcd(tmp_path / "etcd").start()
    yield etcd
    etcd.kill()


@pytest.fixture
async def store(etcd):
    store = open_store(etcd)
    yield store
    await store.close()


async def next_with_changes(watch):
    async with asyncio.timeout(30):
        while True:
            change_set = await anext(watch)
            if change_set.changes:
                return change_set


async def fill(store, count, prefix="k/"):
    names = [f"{prefix}{number:05}" for number in range(count)]
    for begin in range(0, count, OPS_MAX):
        await store.commit([], [Put(name, b"x") for name in names[begin : begin + OPS_MAX]])
    return names


async def compact(store):
    await store._members.call("Compact", wire.compact(store._revision))


async def test_a_scan_of_several_pages_is_of_one_revision(store):
    names = await fill(store, PAGE_KEYS * 2 + 7)
    entries, revision = await store.scan("k/")
    assert [entry.key for entry in entries] == names
    assert revision == (len(names) + OPS_MAX - 1) // OPS_MAX


async def test_large_values_are_read_in_smaller_pages(store):
    for number in range(80):
        await store.commit([], [Put(f"k/{number:02}", bytes(1024 * 1024))])
    entries, _ = await store.scan("k/")
    assert len(entries) == 80
    assert {len(entry.value) for entry in entries} == {1024 * 1024}


async def test_a_long_history_is_told_in_slices(store):
    """etcd tells a thousand revisions in one answer; no turn of the loop may take them all."""
    names = await fill(store, 3_000)
    turns = 0

    async def count_turns():
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    watch = store.watch("k/", 1)
    seen = [change.key for change in (await next_with_changes(watch)).changes]
    counting = asyncio.create_task(count_turns())
    while len(seen) < len(names):
        seen += [change.key for change in (await anext(watch)).changes]
    counting.cancel()
    assert seen == names
    # The first slice came before, and the last ends the count.
    assert turns >= len(names) // CHANGES_PER_TURN - 3


async def test_a_watch_from_before_a_compaction_is_told(store):
    for number in range(5):
        await store.commit([], [Put("a", str(number).encode())])
    await compact(store)
    with pytest.raises(Compacted, match="revision 2 "):
        await next_with_changes(store.watch("", 2))
    assert await store.commit([], [Put("a", b"")]) == 6
    assert (await next_with_changes(store.watch("", 6))).rev == 6


async def test_a_deletion_at_the_revision_of_a_compaction_is_not_lost(store):
    """etcd 3.4.23 forgets the deletion, and lets a watch begin there all the same."""
    await store.commit([], [Put("a", b"1"), Put("b", b"1")])
    await store.commit([], [Delete("a")])
    await compact(store)
    await store.commit([], [Put("b", b"2")])
    with pytest.raises(Compacted):
        await next_with_changes(store.watch("", 2))


async def test_a_mirror_outlives_a_compaction(etcd, store):
    mirror = Mirror(store, "k/", SystemClock())
    await fill(store, 3)
    await mirror.start()
    etcd.pause()
    etcd.resume()
    await store.commit([], [Delete("k/00000")])
    await compact(store)
    revision = await store.commit([], [Put("k/9", b"y")])
    await asyncio.wait_for(mirror.reached(revision), 30)
    assert sorted(mirror.entries) == ["k/00001", "k/00002", "k/9"]
    await mirror.close()


async def test_who_waits_for_a_commit_that_changed_nothing_does_not_hang(store):
    mirror = Mirror(store, "mine/", SystemClock())
    await mirror.start()
    await store.commit([], [Put("other", b"")])
    revision = await store.commit([Guard("mine/a", mod_rev=0)], [Delete("mine/a")])
    await asyncio.wait_for(mirror.reached(revision), 30)
    await mirror.close()


async def test_a_watch_proves_no_more_than_is_so(store):
    """While a change under the prefix is on its way, the watch must not claim to be past it."""
    watch = store.watch("mine/", 1)
    seen = []

    async def follow():
        async for change_set in watch:
            seen.append(change_set)  # noqa: PERF401 - it has no end

    following = asyncio.create_task(follow())
    for number in range(200):
        await store.commit([], [Put("other", b"")])
        await store.commit([], [Put(f"mine/{number % 3}", b"")])
    await until(lambda: reached(seen, 400))
    following.cancel()
    assert [each.rev for each in seen if each.changes] == list(range(2, 401, 2))
    assert [each.rev for each in seen] == sorted({each.rev for each in seen})


@pytest.mark.parametrize("who", ["this node", "another node"])
async def test_a_stream_that_has_fallen_silent_is_opened_anew(etcd, store, monkeypatch, who):
    """Everything else is answered by that member, so that nothing else tells of it."""
    monkeypatch.setattr(watching, "IDLE_SECONDS", 0.001)
    monkeypatch.setattr(watching, "QUIET_SECONDS", 0.1)
    other = open_store(etcd)
    opened, stream = [], store._members.stream

    class Silent:
        def __init__(self, call):
            self.write = call.write

        async def read(self):
            await asyncio.Event().wait()

    @asynccontextmanager
    async def first_is_silent(method, **given):
        async with stream(method, **given) as call:
            opened.append(method)
            yield Silent(call) if len(opened) == 1 else call

    monkeypatch.setattr(store._members, "stream", first_is_silent)
    watch = store.watch("mine/", 1)
    coming = asyncio.ensure_future(next_with_changes(watch))
    await asyncio.sleep(0)
    await (store if who == "this node" else other).commit([], [Put("mine/a", b"1")])
    assert (await coming).rev == 1
    assert len(opened) > 1, "on a busy machine the second one may count as silent, too"
    await other.close()


async def reached(seen, rev):
    return seen and seen[-1].rev == rev


async def test_a_watch_goes_on_without_a_gap_when_etcd_ends_and_comes_back(etcd, store):
    watch = store.watch("", 1)
    await store.commit([], [Put("a", b"1")])
    assert (await next_with_changes(store.watch("", 1))).rev == 1
    waiting = asyncio.ensure_future(next_with_changes(watch))
    assert (await waiting).rev == 1
    etcd.kill()
    with pytest.raises((Unavailable, Ambiguous)):
        await store.commit([], [Put("a", b"2")])
    await asyncio.to_thread(etcd.start)
    revision = 0
    while not revision:
        try:
            revision = await store.commit([Guard("a", mod_rev=1)], [Put("a", b"2")])
        except Unavailable:
            await asyncio.sleep(0.05)
    assert await next_with_changes(store.watch("", 2)) is not None
    assert revision == 2


async def test_a_commit_without_an_answer_is_ambiguous(etcd, store):
    await store.commit([], [Put("a", b"1")])
    etcd.pause()
    with pytest.raises(Ambiguous):
        await store.commit([], [Put("a", b"2")])
    etcd.resume()
    entry = await store.get("a")
    assert entry.value in (b"1", b"2")


async def test_nobody_answers(tmp_path):
    (port,) = free_ports(1)
    store = EtcdStore(Members([f"127.0.0.1:{port}"]), SystemClock())
    for use in (store.get("a"), store.scan(""), store.commit([], []), store.session(9, print)):
        with pytest.raises(Unavailable, match=f"no etcd answers at 127.0.0.1:{port}"):
            await use
    await store.close()


async def test_another_member_is_asked_when_one_is_gone(etcd):
    (port,) = free_ports(1)
    store = EtcdStore(Members([f"127.0.0.1:{port}", etcd.endpoint]), SystemClock())
    assert await store.commit([], [Put("a", b"1")]) == 1
    assert (await store.get("a")).value == b"1"
    session = await store.session(2.0, lambda state: None)
    assert session.is_alive
    await store.close()


async def test_a_session_is_kept_alive_and_ends_at_etcd(store):
    states = []
    session = await store.session(1.0, states.append)
    await store.commit([], [Put("live", b"", session.id)])
    first = session.certain_until
    await until(lambda: is_later(session, first + 2))
    assert await store.get("live") is not None
    session._stop()  # As a process that stands still.
    await until(lambda: is_gone(store, "live"))
    session._renew()
    await until(lambda: is_lost(session))
    assert states == [SessionState.CONNECTED, SessionState.LOST]


async def is_later(session, deadline):
    return session.certain_until > deadline


async def is_gone(store, key):
    return await store.get(key) is None


async def is_lost(session):
    return not session.is_alive


async def test_a_session_outlives_a_restart_of_etcd_but_cannot_be_counted_on(etcd, store):
    states = []
    session = await store.session(2.0, states.append)
    await store.commit([], [Put("live", b"", session.id)])
    etcd.kill()
    async with asyncio.timeout(30):
        while states[-1] is not SessionState.SUSPENDED:  # noqa: ASYNC110 - told by a callback
            await asyncio.sleep(0.01)
    assert session.certain_until < SystemClock().monotonic()
    await asyncio.to_thread(etcd.start)
    async with asyncio.timeout(30):
        while states[-1] is not SessionState.CONNECTED:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
    assert (await store.get("live")).session == session.id
    assert session.certain_until > SystemClock().monotonic() - 1


async def test_an_etcd_that_went_back_in_time_is_not_used(etcd, store):
    broken = []
    store.on_broken = broken.append
    await store.commit([], [Put("a", b"1")])
    await asyncio.to_thread(etcd.kill)
    etcd.keep("early")
    await asyncio.to_thread(etcd.start)
    watch = store.watch("", 1)
    assert (await next_with_changes(watch)).rev == 1
    for number in range(5):
        await until(lambda number=number: put(store, f"b{number}"))
    await asyncio.to_thread(etcd.kill)
    etcd.go_back("early")
    await asyncio.to_thread(etcd.start)
    await until(lambda: says(store, "restored from a backup"))
    with pytest.raises(Unavailable, match="restored from a backup"):
        await asyncio.wait_for(to_the_end(watch), 30)
    assert len(broken) == 1


async def to_the_end(watch):
    async for _ in watch:
        pass


async def put(store, key):
    try:
        await store.commit([], [Put(key, b"")])
    except (Unavailable, Ambiguous):
        return False
    return True


async def says(store, text):
    try:
        await store.get("a")
    except Unavailable as error:
        return text in str(error)
    return False


async def administrate(store, method, message=b""):
    """Have etcd change its users and roles, as ``store`` is known there."""
    members = store._members
    _, channel = await members._reached()
    shown = _metadata(members._token)
    await channel.unary_unary(f"/etcdserverpb.Auth/{method}")(message, metadata=shown)


async def want_passwords(store):
    name = wire._bytes(1, b"root")
    await administrate(store, "UserAdd", name + wire._bytes(2, b"secret"))
    await administrate(store, "RoleAdd", name)
    await administrate(store, "UserGrantRole", name + wire._bytes(2, b"root"))
    await administrate(store, "AuthEnable")


async def test_users_and_their_passwords(etcd, store):
    await want_passwords(store)
    with pytest.raises(Unavailable, match="user name is empty"):
        await store.commit([], [Put("a", b"1")])
    for password, is_right in (("secret", True), ("wrong", False)):
        members = Members([etcd.endpoint], security=Security(user="root", password=password))
        other = EtcdStore(members, SystemClock())
        if is_right:
            assert await other.commit([], [Put("a", b"1")]) == 1
            watching = asyncio.ensure_future(next_with_changes(other.watch("", 1)))
            assert isinstance(await watching, ChangeSet)
            session = await other.session(2.0, lambda state: None)
            await session.close()
        else:
            with pytest.raises(Unavailable, match="authentication failed"):
                await other.get("a")
        await other.close()


@pytest.mark.parametrize("kind", ["simple", "jwt"])
async def test_a_login_is_renewed_when_users_change_or_etcd_begins_anew(tmp_path, kind):
    """Once a node whose token was of an older list of users could change nothing any more."""
    options = ()
    if kind == "jwt":
        if shutil.which("openssl") is None:
            pytest.skip("no openssl to make a key")
        openssl("genrsa", "-out", "own.pem", "2048", cwd=tmp_path)
        openssl("rsa", "-in", "own.pem", "-pubout", "-out", "public.pem", cwd=tmp_path)
        keys = f"pub-key={tmp_path}/public.pem,priv-key={tmp_path}/own.pem"
        options = (f"--auth-token=jwt,{keys},sign-method=RS256,ttl=10m",)
    etcd = Etcd(tmp_path / "etcd", *options).start()
    first = open_store(etcd)
    known = Members([etcd.endpoint], security=Security(user="root", password="secret"))
    store = EtcdStore(known, SystemClock())
    try:
        await want_passwords(first)
        assert await store.commit([], [Put("a", b"1")]) == 1
        watch = store.watch("", 1)
        assert (await next_with_changes(watch)).rev == 1
        bob = wire._bytes(1, b"bob") + wire._bytes(2, b"b")
        await administrate(store, "UserAdd", bob)
        assert await store.commit([], [Put("a", b"2")]) == 2
        assert (await next_with_changes(watch)).rev == 2
        etcd.kill()
        etcd.start()
        await until(lambda: answers(store))
        await administrate(store, "UserDelete", wire._bytes(1, b"bob"))
        assert (await store.get("a")).value == b"2"
        assert await store.commit([], [Put("a", b"3")]) == 3
        assert (await next_with_changes(watch)).rev == 3
    finally:
        await store.close()
        await first.close()
        etcd.kill()


async def answers(store):
    try:
        await store.get("a")
    except Unavailable:
        return False
    return True
