"""Changes the cluster's ACLs: checks, commits, waits for the image.

Only this module writes ACLs. ``why_invalid`` decides without I/O what may be created. A change is
in force on this node when its Pending is done.
Source: KIP-11, KIP-801; the answers of a live Kafka 4.3.
"""

import asyncio
from collections.abc import Callable, Sequence

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.acl_values import acl_digest, encode_acl
from ottla.metadata.answering import store_answers, unsure
from ottla.metadata.image import ImageFollower
from ottla.metadata.keys import Keys
from ottla.metadata.store import (
    OPS_MAX,
    Ambiguous,
    Delete,
    Op,
    Put,
    Unavailable,
    in_commits,
)
from ottla.pending import Pending, pending_of
from ottla.security.access import CLUSTER
from ottla.security.acl import Acl, ResourceType

CHANGES_MAX = 10_000
"""The most ACLs that one request may create or delete, as in Kafka."""
NAME_LENGTH_MAX = 1_024
"""The longest name, principal or host of an ACL: all ACLs are kept in memory."""

Outcome = KafkaError | None


class Acls:
    """The ACLs of one cluster, to be changed."""

    def __init__(self, keys: Keys, follower: ImageFollower, *, acls_max: int) -> None:
        self._keys = keys
        self._follower = follower
        self._acls_max = acls_max
        self._promised = 0
        """Use: how many ACLs are being created, which the image does not have yet."""

    def create(self, acls: Sequence[Acl]) -> Pending[list[Outcome]]:
        """Create ACLs; the Pending gets one outcome for each, in order: None is success."""
        return pending_of(self._create(acls))

    def catch_up(self) -> Pending[Outcome]:
        """Have this node know all ACLs that anybody has created; the Pending gets None then."""
        return pending_of(self._catch_up())

    async def _catch_up(self) -> Outcome:
        try:
            await self._follower.catch_up()
        except (Unavailable, Ambiguous) as error:
            return unsure(error).as_value()
        return None

    def delete(self, acls: Sequence[Acl]) -> Pending[dict[Acl, Outcome]]:
        """Delete ACLs; the Pending gets the outcome of each."""
        return pending_of(self._delete(acls))

    async def _create(self, acls: Sequence[Acl]) -> list[Outcome]:
        outcomes: dict[Acl, Outcome] = {}
        try:
            await self._follower.catch_up()
        except (Unavailable, Ambiguous) as error:
            return [unsure(error).as_value()] * len(acls)
        known, wanted = self._follower.image.acls, {}
        for number, acl in enumerate(acls, 1):
            if acl not in outcomes:
                outcomes[acl] = why_invalid(acl)
                if outcomes[acl] is None and (digest := acl_digest(acl)) not in known:
                    wanted[self._keys.acl(digest)] = acl
            if not number % OPS_MAX:
                await asyncio.sleep(0)
        room = max(self._acls_max - len(known) - self._promised, 0)
        for acl in list(wanted.values())[room:]:
            why = f"ottla.acls.max is {self._acls_max}"
            outcomes[acl] = KafkaError(ErrorCode.POLICY_VIOLATION, why).as_value()
        made = list(wanted.items())[:room]
        self._promised += len(made)
        try:
            await self._commit(
                [acl for _, acl in made],
                lambda at: Put(made[at][0], encode_acl(made[at][1])),
                outcomes,
            )
        finally:
            self._promised -= len(made)
        return [outcomes[acl] for acl in acls]

    async def _delete(self, acls: Sequence[Acl]) -> dict[Acl, Outcome]:
        outcomes: dict[Acl, Outcome] = dict.fromkeys(acls)
        gone = list(outcomes)
        await self._commit(gone, lambda at: Delete(self._keys.acl(acl_digest(gone[at]))), outcomes)
        return outcomes

    async def _commit(
        self, acls: Sequence[Acl], op_at: Callable[[int], Op], outcomes: dict[Acl, Outcome]
    ) -> None:
        """Commit what ``op_at`` makes of each place in ``acls``; note what fails."""
        begin = 0
        for ops in in_commits(op_at(at) for at in range(len(acls))):
            some = acls[begin : begin + len(ops)]
            begin += len(ops)
            try:
                # A removal without an answer, carried out late, would take an ACL along that was
                # made anew: what goes is guarded.
                going = [op.key for op in ops if isinstance(op, Delete)]
                with store_answers():
                    await self._follower.mirror.commit_as_seen("these ACLs", going, ops)
            except KafkaError as error:
                refusal = error.as_value()
                outcomes |= dict.fromkeys(some, refusal)
            await asyncio.sleep(0)


def why_invalid(acl: Acl) -> Outcome:
    """Return why an ACL cannot be created, as Kafka says it; None when it can."""
    kind, name = acl.resource
    principal, host = acl.rule.principal, acl.rule.host
    why = ""
    if kind is ResourceType.CLUSTER and name != CLUSTER.name:
        why = f"The only valid name for the CLUSTER resource is {CLUSTER.name}"
    elif not name:
        why = "Invalid empty resource name"
    elif ":" not in principal:
        why = (
            f"Could not parse principal from `{principal}` (no colon is present separating the"
            " principal type from the principal name)"
        )
    elif max(len(name), len(principal), len(host)) > NAME_LENGTH_MAX:
        why = f"Names, principals and hosts of ACLs have at most {NAME_LENGTH_MAX} characters"
    return KafkaError(ErrorCode.INVALID_REQUEST, why).as_value() if why else None
