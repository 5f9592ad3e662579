"""A metadata store on a machine whose power goes after some commits."""

from ottla.metadata.memory_store import MemoryStore


class CutOff(Exception):
    """The power went."""


class FailingStore(MemoryStore):
    """``left``: how many commits there are until the power goes; None: it does not."""

    left = None

    async def commit(self, guards, ops):
        if self.left is not None:
            if self.left == 0:
                raise CutOff
            self.left -= 1
        return await super().commit(guards, ops)
