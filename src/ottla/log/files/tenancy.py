"""Who may use a partition's directory by its name, and until when.

A directory is named after its topic, and the name changes hands: a topic is deleted, its directory
renamed, and a new topic of the same name gets a directory of the same path; a replica moves to
another log directory. Work that runs beside the loop knows paths only, so each log has a tenancy of
its directory, and this rule:

    a job      does whatever names a file of the directory, or the directory, within ``inside``: a
               sync of it, a file opened, renamed or removed. It gets ``TenancyOver`` in place of
               that when the directory is not this log's any more. Files that are open already may
               be read, written and synced without. A job enters when it runs, not when it is
               submitted, and submits nothing and waits for no other job while it is inside.
    the loop   may use the path without, as long as the log is in service.
    who takes  the name away (deletion, a move) calls ``end`` on the loop, together with taking the
    the name   log out of service: nobody enters any more. Before the rename, on whatever thread
               does it, it calls ``wait_until_left``. A move that may yet be taken back holds the
               directory ``alone`` around its renames and ends the tenancy when it is decided.

So a path never vanishes or changes hands under a job by our own doing. When one is missing within
``inside``, somebody else removed it: that is reported as any fault of the disk. Below log.log,
above env.gate. Source: reliability rules 14 and 19.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from ottla.env.gate import Gate
from ottla.errors import OttlaError

Result = TypeVar("Result")


class TenancyOver(OttlaError):
    """The directory is not this log's any more: there is nothing left to be done in it."""


class Tenancy:
    """One log's use of its directory. Every call may come from any thread."""

    __slots__ = ("_gate",)

    def __init__(self) -> None:
        self._gate = Gate()

    @property
    def is_over(self) -> bool:
        """Tell whether the directory is the log's no more, or is about to be another's."""
        return self._gate.is_shut

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Use the directory during a ``with`` block. Raises TenancyOver.

        Blocks while a move renames the directory. An OSError after the tenancy's end is
        TenancyOver, too: nobody needs what the job was to do.
        """
        if not self._gate.enter():
            raise TenancyOver
        try:
            yield
        except OSError as error:
            if self._gate.is_shut:
                raise TenancyOver from error
            raise
        finally:
            self._gate.leave()

    def job(self, work: Callable[[], Result]) -> Callable[[], Result]:
        """Return ``work``, done within ``inside``: for an executor."""

        def guarded() -> Result:
            with self.inside():
                return work()

        return guarded

    def alone(self) -> AbstractContextManager[None]:
        """Hold the directory during a ``with`` block: others wait. Blocks until they have left."""
        return self._gate.alone()

    def end(self) -> None:
        """Let nobody use the directory any more. Does not block; harmless twice."""
        self._gate.shut()

    def wait_until_left(self) -> None:
        """Return when no other thread is inside. Blocks for the length of a job's disk calls."""
        self._gate.wait_until_left()
