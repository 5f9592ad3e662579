"""Guards of delegation tokens: who may ask for a token of somebody else (KIP-373)."""

from __future__ import annotations  # else each call would build those of inner functions

from ottla.errors import ErrorCode
from ottla.handlers.apis.delegation_tokens_off import owner_of, refused_creation
from ottla.handlers.authorization.guarded import Guard, Node, Serve
from ottla.handlers.call import Call, Response
from ottla.ids import ANONYMOUS
from ottla.protocol.apis import ApiKey
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from ottla.protocol.schema import Message
from ottla.security.access import Access
from ottla.security.acl import Operation, ResourceType

_REFUSED = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED


def create(
    request: CreateDelegationTokenRequest, call: Call, access: Access, serve: Serve
) -> Response:
    """Ask for CREATE_TOKENS on the owner, unless it is the requester's own token."""
    owner = owner_of(request, call.principal)
    if (
        call.principal in (ANONYMOUS, owner)  # the first is refused in any case, for that
        or access.may(Operation.CREATE_TOKENS, ResourceType.USER, str(owner))
    ):
        return serve(request)
    return refused_creation(request, call, _REFUSED)


def of_the_token(request: Message, call: Call, access: Access, serve: Serve) -> Response:
    """Ask for nothing: it depends on the token, and there is none."""
    del call, access
    return serve(request)


def guards_of(node: Node) -> dict[ApiKey, Guard]:
    """Return the guards of this module, by API."""
    del node
    return {
        ApiKey.CREATE_DELEGATION_TOKEN: create,
        ApiKey.RENEW_DELEGATION_TOKEN: of_the_token,
        ApiKey.EXPIRE_DELEGATION_TOKEN: of_the_token,
        ApiKey.DESCRIBE_DELEGATION_TOKEN: of_the_token,
    }
