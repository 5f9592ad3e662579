"""Logs what was denied, to the logger ``ottla.audit``; at DEBUG what was allowed, too.

Each kind of denial (who, from where, what) is logged once a minute, with a count: a client must not
be able to fill a disk, or to write lines of its own.
"""

import logging

from ottla.handlers.refusals import Refusals
from ottla.security.access import Access
from ottla.security.acl import Operation, Resource

logger = logging.getLogger("ottla.audit")


class Audit:
    """Hears of decisions."""

    def __init__(self, refusals: Refusals) -> None:
        self._refusals = refusals

    def hear(self, access: Access, operation: Operation, resource: Resource, allowed: bool) -> None:
        """Log a decision."""
        what = f"{operation.name} {resource.type.name} {resource.name[:NAME_SHOWN_MAX]!r}"
        if allowed:
            logger.debug("allowed %s: %s: %s", access.host, _shown(access), what)
        else:
            self._refusals.note(access.host, str(access.principal), f"may not {what}")


NAME_SHOWN_MAX = 255


def _shown(access: Access) -> str:
    return repr(str(access.principal)[:NAME_SHOWN_MAX])
