"""Who may log in to a cluster from its first start on."""

import pytest

from ottla.cluster.credentials import Credentials
from ottla.env.executor import ThreadExecutor
from ottla.env.rng import SeededRng
from ottla.security.credentials import SCRAM_SHA_256, FirstUser, PasswordDiffers

ALICE = FirstUser("alice", SCRAM_SHA_256, "wonder land")
ADMIN = FirstUser("admin", SCRAM_SHA_256, "a password", is_needed=True)


@pytest.fixture
def begin(following):
    credentials = Credentials(
        following.store, following.keys, following.follower, SeededRng(1), credentials_max=10
    )
    executor = ThreadExecutor(1, "hashing")

    async def run(*users):
        await credentials.begin_with(users, executor)
        return dict(credentials.known.of(SCRAM_SHA_256))

    yield run
    executor.close()


async def test_a_new_cluster_takes_all_in(begin):
    assert set(await begin(ALICE, ADMIN)) == {"alice", "admin"}


async def test_a_cluster_with_users_takes_in_only_who_is_needed(begin):
    first = await begin(FirstUser("bob", SCRAM_SHA_256, "builder"))
    second = await begin(ALICE, ADMIN)
    assert set(second) == {"bob", "admin"}
    assert second["bob"] == first["bob"]


async def test_who_is_known_by_this_password_is_not_changed(begin):
    first = await begin(ADMIN)
    assert await begin(ADMIN) == first


async def test_who_is_known_by_another_password_is_not_changed_but_told(begin):
    first = await begin(ADMIN)
    with pytest.raises(PasswordDiffers) as error:
        await begin(ADMIN._replace(password="another"))
    assert "another password" in str(error.value)
    assert "a password" not in repr(error.value).replace("another password", "")
    assert await begin() == first
