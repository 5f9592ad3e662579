"""Puts the authorizer together: guards, the ACL APIs, and what each client may do."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ottla.cluster.acls import Acls
from ottla.handlers.authorization.audit import Audit, logger
from ottla.handlers.authorization.guarded import Node
from ottla.handlers.authorization.table import Make, behind_guards
from ottla.handlers.call import Handler
from ottla.handlers.client import Client
from ottla.handlers.refusals import Refusals
from ottla.metadata.image import ImageFollower, MetadataDelta, MetadataImage
from ottla.protocol.apis import ApiKey
from ottla.security.access import Accesses
from ottla.security.authorizer import Authorizer


class Authorization:
    """The authorizer of one node, and what it guards."""

    def __init__(self, authorizer: Authorizer, acls: Acls, audit: Audit, node: Node) -> None:
        self._node = node
        self._acls = acls
        self._accesses = Accesses(authorizer, audit.hear)
        self._authorizer = authorizer

    def known(self, client: Client) -> Client:
        """Return the client together with what it may do."""
        return client._replace(access=self._accesses.of(client.principal, client.host))

    def behind_guards(self, makers: Mapping[ApiKey, Make]) -> dict[ApiKey, Make]:
        """Return what makes the handlers, behind their guards. Raises LookupError."""
        return behind_guards(makers, self._node)

    def describe_acls(self) -> Handler[Any]:
        """Return the handler of DescribeAcls."""
        from ottla.handlers.apis.acls import DescribeAcls  # noqa: PLC0415 - when it is asked for

        return DescribeAcls(self._authorizer)

    def create_acls(self) -> Handler[Any]:
        """Return the handler of CreateAcls."""
        from ottla.handlers.apis.acls import CreateAcls  # noqa: PLC0415 - when it is asked for

        return CreateAcls(self._acls)

    def delete_acls(self) -> Handler[Any]:
        """Return the handler of DeleteAcls."""
        from ottla.handlers.apis.acls import DeleteAcls  # noqa: PLC0415 - when it is asked for

        return DeleteAcls(self._acls, self._authorizer)


def authorization_of(
    authorizer: Authorizer, follower: ImageFollower, acls: Acls, refusals: Refusals, node: Node
) -> Authorization:
    """Return what guards a node. ``authorizer`` follows the metadata from now on."""
    authorizer.tells_allowed = logger.isEnabledFor(logging.DEBUG)
    for acl in follower.image.acls.values():
        authorizer.add(acl)

    def follow(image: MetadataImage, delta: MetadataDelta) -> None:
        del image
        for old, new in delta.acls:
            if old is not None:
                authorizer.remove(old)
            if new is not None:
                authorizer.add(new)

    follower.add_listener(follow)
    return Authorization(authorizer, acls, Audit(refusals), node)
