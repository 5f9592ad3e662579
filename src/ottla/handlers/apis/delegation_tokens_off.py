"""Create-, Renew-, Expire- and DescribeDelegationToken, keys 38 to 41: there are no tokens here.

Answers as a Kafka without ``delegation.token.secret.key`` does: 64 to a client that has not said
who it is, else 61. The times of a refusal are -1 where a broker of Kafka refuses by itself, and 0
where its controller does. Source: KIP-48, KIP-373; the answers of a live Kafka 4.3.
"""

from ottla.errors import ErrorCode
from ottla.handlers.call import Call
from ottla.ids import ANONYMOUS, Principal
from ottla.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ottla.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from ottla.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

_OFF = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
_NOT_SO = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
_NO_TIME = -1


def owner_of(request: CreateDelegationTokenRequest, requester: Principal) -> Principal:
    """Return whose token is asked for: the requester's own, unless another is named."""
    if not request.owner_principal_name:
        return requester
    return Principal(request.owner_principal_type or "", request.owner_principal_name)


def refused_creation(
    request: CreateDelegationTokenRequest, call: Call, code: ErrorCode, time_ms: int = _NO_TIME
) -> CreateDelegationTokenResponse:
    """Return the answer without a token; ``time_ms`` stands for all its times."""
    owner, requester = owner_of(request, call.principal), call.principal
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=time_ms,
        expiry_timestamp_ms=time_ms,
        max_timestamp_ms=time_ms,
        token_id="",
        hmac=b"",
    )


class CreateDelegationToken:
    """Makes none."""

    def handle(
        self, request: CreateDelegationTokenRequest, call: Call
    ) -> CreateDelegationTokenResponse:
        """Refuse."""
        if call.principal == ANONYMOUS:
            return refused_creation(request, call, _NOT_SO)
        if any(one.principal_type != ANONYMOUS.kind for one in request.renewers):
            return refused_creation(request, call, ErrorCode.INVALID_PRINCIPAL_TYPE)
        return refused_creation(request, call, _OFF, 0)


class RenewDelegationToken:
    """Knows of none to renew."""

    def handle(
        self, request: RenewDelegationTokenRequest, call: Call
    ) -> RenewDelegationTokenResponse:
        """Refuse."""
        del request
        code, time_ms = _why_not(call)
        return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=time_ms)


class ExpireDelegationToken:
    """Knows of none to end."""

    def handle(
        self, request: ExpireDelegationTokenRequest, call: Call
    ) -> ExpireDelegationTokenResponse:
        """Refuse."""
        del request
        code, time_ms = _why_not(call)
        return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=time_ms)


class DescribeDelegationToken:
    """Knows of none to tell of."""

    def handle(
        self, request: DescribeDelegationTokenRequest, call: Call
    ) -> DescribeDelegationTokenResponse:
        """Refuse."""
        del request
        return DescribeDelegationTokenResponse(error_code=_why_not(call)[0], tokens=[])


def _why_not(call: Call) -> tuple[ErrorCode, int]:
    """Return the error, and the time that goes with it."""
    return (_NOT_SO, _NO_TIME) if call.principal == ANONYMOUS else (_OFF, 0)
