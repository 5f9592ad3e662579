"""CRC32C (Castagnoli), the checksum of RecordBatch v2.

Owns the choice of implementation and nothing else. Both libraries run in C with the CPU's own
instruction; ``crc32c`` also reads any buffer where it lies, ``google_crc32c`` wants ``bytes`` and
costs a copy, so it is only the stand-in for platforms without a wheel of the first.
"""

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer


def _load_extension() -> "Callable[[Buffer], int]":
    """Return the function of ``crc32c``'s extension module. Raises ImportError, AttributeError.

    Without running the package's ``__init__``: that reads its own version by importlib.metadata,
    which brings email, zipfile and forty more modules (25 ms of a start, 3 MB).
    """
    package = find_spec("crc32c")
    folders = package.submodule_search_locations if package is not None else None
    found = PathFinder.find_spec("crc32c._crc32c", folders or [])
    if found is None or found.loader is None:
        raise ImportError("crc32c has no module _crc32c")
    module = module_from_spec(found)
    found.loader.exec_module(module)
    function: Callable[[Buffer], int] = module.crc32c
    return function


try:
    try:
        _sum = _load_extension()
    except (ImportError, AttributeError):  # pragma: no cover - a crc32c that is laid out otherwise
        from crc32c import crc32c as _sum
except ImportError:  # pragma: no cover - depends on the platform's wheels
    from google_crc32c import value as _sum_of_bytes

    def _copy_and_sum(data: "Buffer") -> int:
        return int(_sum_of_bytes(bytes(data)))

    _sum = _copy_and_sum

crc32c: "Callable[[Buffer], int]" = _sum
"""Returns the CRC32C of all bytes of a buffer as an unsigned 32-bit number. The extension's own
function: one of ours around it is a third of what a small batch's sum costs."""
