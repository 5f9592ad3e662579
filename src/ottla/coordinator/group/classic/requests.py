"""The port that serves requests of the classic protocol. Each kind of group has its own answers."""

from collections.abc import Sequence
from typing import Any, Protocol

from ottla.coordinator.group.classic.events import Heartbeat, Join, LeavingMember, Sync
from ottla.pending import Pending


class ClassicRequests(Protocol):
    """Serves requests of the classic protocol in the group's turn. Raises KafkaError."""

    def join(self, group_id: str, event: Join, pending: Pending[Any]) -> None:
        """Let a member join."""

    def sync(self, group_id: str, event: Sync, pending: Pending[Any]) -> None:
        """Take a leader's assignment, or hand one out."""

    def heartbeat(self, group_id: str, event: Heartbeat, pending: Pending[Any]) -> None:
        """Keep a member alive."""

    def leave(self, group_id: str, members: Sequence[LeavingMember], pending: Pending[Any]) -> None:
        """Remove members."""

    def heard_of(self, group_id: str, member_id: str) -> None:
        """Hear that a member commits offsets."""
