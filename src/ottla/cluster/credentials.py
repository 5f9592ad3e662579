"""Changes users' SCRAM credentials: checks, commits, waits for the image.

Only this module writes credentials. Of a password it stores only the keys that verify a proof.
``checked`` decides without I/O what a request may do. The first user of a new cluster is also made
here, because nobody could log in to make him.
Source: KIP-554, KIP-900; the answers of a live Kafka 4.3.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import quote

from ottla.env.executor import Executor, run
from ottla.env.rng import Rng
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.answering import store_answers, unsure
from ottla.metadata.image import ImageFollower
from ottla.metadata.keys import Keys
from ottla.metadata.mirror import update
from ottla.metadata.store import (
    KEY_BYTES_MAX,
    OPS_MAX,
    Ambiguous,
    Delete,
    MetadataStore,
    Op,
    Put,
    Unavailable,
)
from ottla.metadata.values import decode_secret, encode_scram, encode_secret
from ottla.pending import Pending, pending_of
from ottla.security.credentials import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES,
    SECRET_BYTES,
    FirstUser,
    PasswordDiffers,
    ScramCredential,
    ScramCredentials,
)
from ottla.security.exchange import NAME_LENGTH_MAX
from ottla.security.scram import credential_of, salted

logger = logging.getLogger(__name__)

ALTERATIONS_MAX = 1_000
"""The most changes that one request may ask for."""
KEY_BYTES_ELSE = 200
"""The most bytes of a credential's key without the user's name."""
SALT_BYTES_MAX = 1_024
"""The longest salt: every exchange sends it."""


@dataclass(frozen=True, slots=True)
class Upsertion:
    """A credential to set; ``mechanism`` None: the request names an unknown one."""

    name: str
    mechanism: str | None
    iterations: int
    salt: bytes
    salted_password: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Deletion:
    """A credential to remove; ``mechanism`` as in Upsertion."""

    name: str
    mechanism: str | None


Alteration = Upsertion | Deletion


class Credentials:
    """The credentials of one cluster, to be changed."""

    def __init__(
        self,
        store: MetadataStore,
        keys: Keys,
        follower: ImageFollower,
        rng: Rng,
        *,
        credentials_max: int,
    ) -> None:
        """Build it; ``credentials_max``: the limit over all users and mechanisms together."""
        self._credentials_max = credentials_max
        self._store = store
        self._keys = keys
        self._follower = follower
        self._rng = rng

    @property
    def known(self) -> ScramCredentials:
        """All credentials, as the image has them."""
        return self._follower.image.credentials

    async def secret(self) -> bytes:
        """Return the cluster's secret; the first call ever makes it. Raises MetadataError."""
        made = encode_secret(self._rng.random_bytes(SECRET_BYTES))
        entry = await update(self._store, self._keys.secret, lambda found: found or made)
        assert entry is not None, "the secret is never deleted"
        return decode_secret(entry.value)

    async def begin_with(self, users: Sequence[FirstUser], executor: Executor) -> None:
        """Set the credentials of ``users``, unless the cluster has credentials already.

        Those that are needed are set beside others, too, but never changed. Raises KafkaError
        UNACCEPTABLE_CREDENTIAL, PasswordDiffers, MetadataError.
        """
        is_new = not len(self.known)
        if users and not is_new and not all(user.is_needed for user in users):
            logger.info("this cluster has users already: --add-scram changes nothing")
        upsertions: list[Upsertion] = []
        for user in {(one.name, one.mechanism): one for one in users}.values():
            known = self.known.of(user.mechanism).get(user.name)
            if known is not None and user.is_needed:
                await _check_password(user, known, executor)
            elif is_new or user.is_needed:
                upsertions.append(await self._upsertion(user, executor))
        if upsertions:
            await self._commit(upsertions)

    async def _upsertion(self, user: FirstUser, executor: Executor) -> Upsertion:
        salt = self._rng.random_bytes(SALT_BYTES)
        _check_iterations(user.iterations)  # Before they are computed.
        password = await run(
            executor, partial(salted, user.password, salt, user.iterations, user.mechanism)
        )
        upsertion = Upsertion(user.name, user.mechanism, user.iterations, salt, password)
        _check(upsertion, self.known)
        return upsertion

    def alter(self, alterations: Sequence[Alteration]) -> Pending[dict[str, KafkaError | None]]:
        """Make the alterations; the Pending gets one outcome per user: None is success."""
        return pending_of(self._alter(alterations))

    async def _alter(self, alterations: Sequence[Alteration]) -> dict[str, KafkaError | None]:
        try:
            await self._follower.catch_up()
        except (Unavailable, Ambiguous) as error:
            return {one.name: unsure(error) for one in alterations}
        outcomes = checked(alterations, self.known, self._credentials_max)
        wanted = [one for one in alterations if outcomes[one.name] is None]
        for begin in range(0, len(wanted), OPS_MAX):
            some = wanted[begin : begin + OPS_MAX]
            try:
                with store_answers():
                    await self._commit(some)
            except KafkaError as error:
                refusal = error.as_value()
                outcomes |= {one.name: refusal for one in some}
            await asyncio.sleep(0)
        return outcomes

    async def _commit(self, alterations: Sequence[Alteration]) -> None:
        """Commit, guarded by what there is: else one without an answer might undo a later one."""
        ops = [self._op(one) for one in alterations]
        keys = [op.key for op in ops]
        await self._follower.mirror.commit_as_seen("the credentials of these users", keys, ops)

    def _op(self, alteration: Alteration) -> Op:
        mechanism = alteration.mechanism
        assert mechanism is not None, "checked before"
        key = self._keys.scram(mechanism, alteration.name)
        if isinstance(alteration, Deletion):
            return Delete(key)
        credential = credential_of(
            alteration.salted_password, alteration.salt, alteration.iterations, mechanism
        )
        return Put(key, encode_scram(credential))


def checked(
    alterations: Sequence[Alteration], known: ScramCredentials, credentials_max: int
) -> dict[str, KafkaError | None]:
    """Return for each user why nothing may be changed, or None; in order of first mention.

    A request may change one credential of a user, as in Kafka: of several errors about a user the
    first is told.
    """
    room = credentials_max - len(known)
    outcomes: dict[str, KafkaError | None] = {}
    for one in alterations:
        if outcomes.get(one.name) is not None:
            continue
        try:
            if one.name in outcomes:
                why = "A user credential cannot be altered twice in the same request"
                raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, why)
            _check(one, known)
            if len(alterations) > ALTERATIONS_MAX:
                why = f"a request may change {ALTERATIONS_MAX} credentials at most"
                raise KafkaError(ErrorCode.INVALID_REQUEST, why)
            room -= _is_new(one, known)
            if room < 0:
                why = f"ottla.scram.credentials.max is {credentials_max}"
                raise KafkaError(ErrorCode.POLICY_VIOLATION, why)
        except KafkaError as error:
            outcomes[one.name] = error.as_value()
        else:
            outcomes[one.name] = None
    return outcomes


def _is_new(one: Alteration, known: ScramCredentials) -> bool:
    return isinstance(one, Upsertion) and one.name not in known.of(one.mechanism or "")


def _check(one: Alteration, known: ScramCredentials) -> None:
    """Raise KafkaError if the alteration cannot be made."""
    if not one.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if one.mechanism is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(one, Deletion):
        if one.name not in known.of(one.mechanism):
            why = "Attempt to delete a user credential that does not exist"
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, why)
        return
    _check_iterations(one.iterations)
    if not one.salt or not one.salted_password:
        why = "Salt and salted password must not be empty"
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, why)
    if len(one.name) > NAME_LENGTH_MAX:
        why = f"A user name has at most {NAME_LENGTH_MAX} characters"
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, why)
    if len(quote(one.name)) > KEY_BYTES_MAX - KEY_BYTES_ELSE:
        why = "The user name is too long to be kept"
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, why)
    if len(one.salt) > SALT_BYTES_MAX:
        why = f"A salt has at most {SALT_BYTES_MAX} bytes"
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, why)


async def _check_password(user: FirstUser, known: ScramCredential, executor: Executor) -> None:
    """Raise PasswordDiffers unless ``known`` was made of the user's password."""
    password = await run(
        executor, partial(salted, user.password, known.salt, known.iterations, user.mechanism)
    )
    if credential_of(password, known.salt, known.iterations, user.mechanism) != known:
        raise PasswordDiffers(user.name)


def _check_iterations(iterations: int) -> None:
    if iterations < ITERATIONS_MIN:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if iterations > ITERATIONS_MAX:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
