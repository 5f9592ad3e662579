"""DescribeUserScramCredentials, key 50: tells who has SCRAM credentials, and no more (KIP-554)."""

from collections import Counter

from ottla.errors import ErrorCode
from ottla.handlers.apis.alter_user_scram_credentials import MECHANISMS
from ottla.handlers.call import Call
from ottla.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ottla.security.credentials import ScramCredentials
from ottla.sliced import Steps, each


class DescribeUserScramCredentials:
    """Answers from what the metadata says."""

    def __init__(self, known: ScramCredentials) -> None:
        self._known = known

    def handle(
        self, request: DescribeUserScramCredentialsRequest, call: Call
    ) -> Steps[DescribeUserScramCredentialsResponse]:
        """Describe each named user; all that there are when none is named."""
        del call
        if not request.users:
            names = sorted({name for one in MECHANISMS.values() for name in self._known.of(one)})
            yield None
        else:
            names = yield from each(request.users, lambda one: one.name)
        times = Counter(names)
        distinct = list(times)
        results = yield from each(distinct, lambda name: self._describe(name, times[name]))
        return DescribeUserScramCredentialsResponse(error_message="", results=results)

    def _describe(self, name: str, times: int) -> DescribeUserScramCredentialsResult:
        if times > 1:
            return DescribeUserScramCredentialsResult(
                user=name,
                error_code=ErrorCode.DUPLICATE_RESOURCE,
                error_message="Cannot describe SCRAM credentials for the same user twice in a "
                f"single request: {name}",
                credential_infos=[],
            )
        infos = []
        for number, mechanism in MECHANISMS.items():
            credential = self._known.of(mechanism).get(name)
            if credential is not None:
                infos.append(CredentialInfo(mechanism=number, iterations=credential.iterations))
        if not infos:
            return DescribeUserScramCredentialsResult(
                user=name,
                error_code=ErrorCode.RESOURCE_NOT_FOUND,
                error_message=f"Attempt to describe a user credential that does not exist: {name}",
                credential_infos=[],
            )
        return DescribeUserScramCredentialsResult(
            user=name, error_message="", credential_infos=infos
        )
