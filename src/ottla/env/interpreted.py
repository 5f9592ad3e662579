"""What extensions outside of ``ottla.records`` use of Cython at run time, where it is missing."""

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


int = int  # noqa: A001, PLW0127 - Cython calls it so
