"""AlterUserScramCredentials, key 51: sets and removes what users log in with (KIP-554)."""

from ottla.cluster.credentials import (
    ALTERATIONS_MAX,
    Alteration,
    Credentials,
    Deletion,
    Upsertion,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.handlers.call import Call
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from ottla.security.credentials import SCRAM_SHA_256, SCRAM_SHA_512
from ottla.sliced import Steps, each

MECHANISMS = {1: SCRAM_SHA_256, 2: SCRAM_SHA_512}
"""The mechanisms by their numbers on the wire."""


class AlterUserScramCredentials:
    """Answers when the changes hold on this node."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def handle(
        self, request: AlterUserScramCredentialsRequest, call: Call
    ) -> Steps[AlterUserScramCredentialsResponse]:
        """Change each user's credentials or none of his; one result per user."""
        del call
        deletions = yield from each(
            request.deletions[: ALTERATIONS_MAX + 1],
            lambda one: Deletion(one.name, MECHANISMS.get(one.mechanism)),
        )
        wanted: list[Alteration] = [*deletions]
        wanted += yield from each(
            request.upsertions[: ALTERATIONS_MAX + 1],  # One more than is taken.
            lambda one: Upsertion(
                one.name,
                MECHANISMS.get(one.mechanism),
                one.iterations,
                bytes(one.salt),
                bytes(one.salted_password),
            ),
        )
        outcomes: dict[str, KafkaError | None] = yield self._credentials.alter(wanted)
        results = yield from each(list(outcomes.items()), lambda one: _result(*one))
        return AlterUserScramCredentialsResponse(results=results)


def _result(name: str, error: KafkaError | None) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(
        user=name,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.why,
    )
