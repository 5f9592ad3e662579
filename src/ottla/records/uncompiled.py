"""The few names of Cython that the kernels of ``ottla.records`` use at run time, doing nothing.

Stands in where the kernel runs interpreted and Cython is not installed. Nothing else may use it.
"""

from collections.abc import Callable
from typing import TypeVar

_Function = TypeVar("_Function", bound=Callable[..., object])
_Value = TypeVar("_Value")
_Object = TypeVar("_Object")

compiled = False


def declare(_type: object, value: _Value) -> _Value:
    """Return the constant; Cython would give it a C type."""
    return value


def cfunc(function: _Function) -> _Function:
    """Return the function; Cython would make it a C function."""
    return function


def cclass(kind: type[_Object]) -> type[_Object]:
    """Return the class; Cython would make it an extension type."""
    return kind


def final(kind: type[_Object]) -> type[_Object]:
    """Return the class; Cython would call its methods without a table."""
    return kind


def inline(function: _Function) -> _Function:
    """Return the function; Cython would tell the C compiler to put it where it is called."""
    return function


def exceptval(*, check: bool) -> Callable[[_Function], _Function]:
    """Return a decorator; Cython would learn whether the function can raise."""
    del check
    return cfunc


class _NoGil:
    """Both a decorator and a context manager; Cython would work without the interpreter's lock."""

    def __call__(self, function: _Function) -> _Function:
        return function

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


nogil = _NoGil()
uint = ulonglong = int
int = int  # noqa: A001, PLW0127 - Cython calls it so
longlong = int
