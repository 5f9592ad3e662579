"""The topics that exist, as groups look them up. A port, which the metadata image fulfils."""

from collections.abc import Mapping
from typing import Protocol

from ottla.metadata.image import TopicImage


class Topics(Protocol):
    """The metadata of topics."""

    @property
    def revision(self) -> int:
        """The revision of the metadata."""

    @property
    def topics(self) -> Mapping[str, TopicImage]:
        """All topics by name."""

    def topic(self, name: str) -> TopicImage | None:
        """Return a topic; None: there is none of that name."""

    def racks(self, topic: TopicImage) -> tuple[tuple[str, ...], ...]:
        """Return the racks of each partition's replicas."""
