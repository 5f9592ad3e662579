"""``AsyncSchemaRegistry``: the names of ``SchemaRegistry``, awaited.

Owns nothing but the way to a thread: a question of HTTP runs on the loop's executor, which bounds
how many run at once. What is kept is answered there, too: callers ask rarely.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar

from ottla.schemas.registry import KEPT, SchemaRegistry
from ottla.schemas.schema import Registered, Schema

Value = TypeVar("Value")


class AsyncSchemaRegistry:
    """A schema registry, for asyncio. ``blocking`` is what formats take.

    Every call raises RegistryError.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        username: str | None = None,
        password: str | None = None,
        token: str | Callable[[], str] | None = None,
        ca: str | None = None,
        timeout: float = 10.0,
        kept: int = KEPT,
    ) -> None:
        """Make a client, as ``SchemaRegistry`` does with the same arguments."""
        self.blocking = SchemaRegistry(
            url, username=username, password=password, token=token, ca=ca, timeout=timeout,
            kept=kept,
        )  # fmt: skip
        """The same registry for code that blocks, and for formats."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Return a registry by the keys of Confluent's clients. Raises BadArgument."""
        found = cls.__new__(cls)
        found.blocking = SchemaRegistry.from_config(config)
        return found

    async def register(
        self, subject: str, schema: Schema, *, normalize: bool = False
    ) -> Registered:
        """Register ``schema``, unless it is already; return its id."""
        return await _on_a_thread(
            lambda: self.blocking.register(subject, schema, normalize=normalize)
        )

    async def lookup(self, subject: str, schema: Schema, *, normalize: bool = False) -> Registered:
        """Return where ``schema`` is registered in ``subject``; raises if it is not."""
        return await _on_a_thread(
            lambda: self.blocking.lookup(subject, schema, normalize=normalize)
        )

    async def by_id(self, schema_id: int, *, form: str = "") -> Schema:
        """Return a schema. ``form`` "serialized": of Protobuf the descriptor in base64."""
        return await _on_a_thread(lambda: self.blocking.by_id(schema_id, form=form))

    async def version(self, subject: str, version: int, *, form: str = "") -> Registered:
        """Return one version of ``subject``, deleted ones too."""
        return await _on_a_thread(lambda: self.blocking.version(subject, version, form=form))

    async def latest(self, subject: str, *, form: str = "") -> Registered:
        """Return the newest version of ``subject``. Asks each time."""
        return await _on_a_thread(lambda: self.blocking.latest(subject, form=form))

    async def subjects(self) -> list[str]:
        """Return the names of all subjects."""
        return await _on_a_thread(self.blocking.subjects)

    async def versions(self, subject: str) -> list[int]:
        """Return the versions of ``subject``."""
        return await _on_a_thread(lambda: self.blocking.versions(subject))

    async def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete ``subject``; return its versions. ``permanent``: of a subject deleted before."""
        return await _on_a_thread(
            lambda: self.blocking.delete_subject(subject, permanent=permanent)
        )

    async def incompatibilities(
        self, subject: str, schema: Schema, *, version: int | None = None
    ) -> list[str]:
        """Return why ``schema`` cannot follow ``version`` (None: the newest); empty: it can."""
        return await _on_a_thread(
            lambda: self.blocking.incompatibilities(subject, schema, version=version)
        )

    async def compatibility(self, subject: str | None = None) -> str:
        """Return the level of ``subject`` ("BACKWARD", ...), of all if it has none of its own."""
        return await _on_a_thread(lambda: self.blocking.compatibility(subject))

    async def set_compatibility(self, level: str, subject: str | None = None) -> None:
        """Set the level of ``subject``; None: of all that have none of their own."""
        await _on_a_thread(lambda: self.blocking.set_compatibility(level, subject))


async def _on_a_thread(ask: Callable[[], Value]) -> Value:
    return await asyncio.get_running_loop().run_in_executor(None, ask)
