"""What travels from the driver to the executors says which Ottla packed it.

Between our readers and writers and Spark, which pickles them on the driver and unpickles them in
every task. Pickle finds classes by name: another version of Ottla on an executor would end a task
with a missing module or attribute, or read options it does not know. So the version goes first, and
nothing else is unpickled before it is the same. Imports the standard library only.
"""

from importlib import import_module
from typing import Any

from ottla import __version__
from ottla.errors import OttlaError


class VersionsDiffer(OttlaError):
    """The driver and an executor have different versions of Ottla."""


class Shipped:
    """A mixin: instances are pickled together with the version of Ottla that did it."""

    def __reduce_ex__(self, protocol: Any) -> Any:  # noqa: ANN401 - as object has it
        cls = type(self)
        is_ours = cls.__module__.startswith("ottla.")
        named = (cls.__module__, cls.__qualname__) if is_ours else cls
        return unpacked, (__version__, named), self.__dict__


def unpacked(version: str, named: Any) -> object:  # noqa: ANN401 - a class, or where to find it
    """Return an empty instance of the class ``named``, if ``version`` is this one.

    Called by pickle, before it unpickles what belongs into the instance. Raises VersionsDiffer.
    """
    if version != __version__:
        raise VersionsDiffer(
            f"the driver has ottla {version}, this executor {__version__}: "
            "install one version on both (docs/spark.md, On a cluster)"
        )
    if isinstance(named, tuple):
        module, name = named
        named = getattr(import_module(module), name)
    return object.__new__(named)
