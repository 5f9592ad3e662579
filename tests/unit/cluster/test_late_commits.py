"""A commit that ended without an answer, and is carried out after later changes, undoes none."""

import pytest

from ottla.cluster.acls import Acls
from ottla.cluster.credentials import Credentials, Deletion, Upsertion
from ottla.env.rng import SeededRng
from ottla.errors import ErrorCode
from ottla.metadata.store import Ambiguous, GuardFailed
from ottla.pending import outcome_of
from ottla.security.credentials import SCRAM_SHA_256
from tests.unit.cluster.test_acls import acl, known


class Lost:
    """Loses the next change on its way; ``arrives`` has the store carry it out at last."""

    def __init__(self, store, monkeypatch):
        self._store, self._commit, self._monkeypatch = store, store.commit, monkeypatch
        monkeypatch.setattr(store, "commit", self._lose)

    async def _lose(self, guards, ops):
        if not ops:
            return await self._commit(guards, ops)
        self._monkeypatch.undo()
        self._asked = guards, ops
        raise Ambiguous("lost")

    async def arrives(self, follower):
        with pytest.raises(GuardFailed):
            await self._store.commit(*self._asked)
        await follower.catch_up()


def password(salt):
    return Upsertion("alice", SCRAM_SHA_256, 4096, salt, b"salted")


@pytest.mark.parametrize("lost", [password(b"old"), Deletion("alice", SCRAM_SHA_256)])
async def test_a_former_change_of_a_password_does_not_come_back(following, monkeypatch, lost):
    credentials = Credentials(
        following.store, following.keys, following.follower, SeededRng(1), credentials_max=10
    )

    async def alter(alteration):
        (outcome,) = (await outcome_of(credentials.alter([alteration]))).values()
        return outcome and outcome.code

    assert await alter(password(b"first")) is None
    on_its_way = Lost(following.store, monkeypatch)
    assert await alter(lost) is ErrorCode.REQUEST_TIMED_OUT
    assert await alter(password(b"new")) is None
    await on_its_way.arrives(following.follower)
    assert credentials.known.of(SCRAM_SHA_256)["alice"].salt == b"new"


async def test_two_nodes_that_change_a_password_at_once_both_do(following):
    credentials = Credentials(
        following.store, following.keys, following.follower, SeededRng(1), credentials_max=10
    )

    async def rival(commit):
        await commit([], [credentials._op(password(b"other"))])

    following.store.before = rival
    assert await outcome_of(credentials.alter([password(b"mine")])) == {"alice": None}
    assert credentials.known.of(SCRAM_SHA_256)["alice"].salt == b"mine"


async def test_a_former_removal_takes_no_acl_along_that_was_made_anew(following, monkeypatch):
    acls = Acls(following.keys, following.follower, acls_max=10)
    await outcome_of(acls.create([acl("a")]))
    on_its_way = Lost(following.store, monkeypatch)
    assert (await outcome_of(acls.delete([acl("a")])))[acl("a")].code is ErrorCode.REQUEST_TIMED_OUT
    assert await outcome_of(acls.delete([acl("a")])) == {acl("a"): None}
    assert await outcome_of(acls.create([acl("a")])) == [None]
    await on_its_way.arrives(following.follower)
    assert known(following) == {acl("a")}
