"""Users and their SCRAM credentials: what an administrator asks and changes.

Owns requests and answers of the two APIs; ``cluster`` owns connections and retries. On asyncio.
The password is salted and hashed here and never sent. Source: KIP-554.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.client.asyncio.cluster import Cluster
from ottla.client.wire.errors import error_code
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from ottla.security.credentials import SCRAM_SHA_256, SCRAM_SHA_512
from ottla.security.scram import salted

NUMBERS = {SCRAM_SHA_256: 1, SCRAM_SHA_512: 2}
"""The mechanisms' numbers on the wire."""
_NAMES = {number: name for name, number in NUMBERS.items()}


class UserCredential(NamedTuple):
    """One credential of a user; of the password nothing is told."""

    user: str
    mechanism: str
    iterations: int


class Users:
    """Calls on a cluster. Every method raises KafkaError with the broker's own words."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def list_credentials(self, users: Iterable[str] = ()) -> list[UserCredential]:
        """Return the credentials of ``users``, by name; of all users if none is named.

        Raises KafkaError RESOURCE_NOT_FOUND for a user that has none.
        """
        names = list(users)
        request = DescribeUserScramCredentialsRequest(
            users=[UserName(name=name) for name in names] if names else None
        )

        async def attempt() -> list[UserCredential]:
            connection = await self._cluster.controller()
            answer = await connection.call(request, DescribeUserScramCredentialsResponse)
            _check(answer.error_code, answer.error_message)
            found: list[UserCredential] = []
            for result in answer.results:
                _check(result.error_code, result.error_message)
                found += [
                    UserCredential(
                        result.user, _NAMES.get(info.mechanism, "unknown"), info.iterations
                    )
                    for info in result.credential_infos
                ]
            return sorted(found)

        return await self._cluster.retrying(attempt)

    async def set_password(
        self, user: str, mechanism: str, password: str, *, salt: bytes, iterations: int
    ) -> None:
        """Set or replace a user's credential. Blocks for about 0.5 ms per 1,000 iterations."""
        upsertion = ScramCredentialUpsertion(
            name=user,
            mechanism=NUMBERS[mechanism],
            iterations=iterations,
            salt=salt,
            salted_password=salted(password, salt, iterations, mechanism),
        )
        await self._alter(AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]))

    async def delete(self, user: str, mechanism: str) -> None:
        """Delete a user's credential. Raises KafkaError RESOURCE_NOT_FOUND if there is none."""
        deletion = ScramCredentialDeletion(name=user, mechanism=NUMBERS[mechanism])
        await self._alter(AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[]))

    async def _alter(self, request: AlterUserScramCredentialsRequest) -> None:
        async def attempt() -> None:
            connection = await self._cluster.controller()
            answer = await connection.call(request, AlterUserScramCredentialsResponse)
            for result in answer.results:
                _check(result.error_code, result.error_message)

        await self._cluster.retrying(attempt)


def _check(code: int, message: str | None) -> None:
    if code != ErrorCode.NONE:
        raise KafkaError(error_code(code), message or "")
