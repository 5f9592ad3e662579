"""CRC32C (Castagnoli), the checksum of RecordBatch v2.

Owns the choice of implementation and nothing else. Both libraries run in C with the CPU's own
instruction; ``crc32c`` also reads any buffer where it lies, ``google_crc32c`` wants ``bytes`` and
costs a copy, so it is only the stand-in for platforms without a wheel of the first.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

try:
    from crc32c import crc32c as _sum
except ImportError:  # pragma: no cover - depends on the platform's wheels
    from google_crc32c import value as _sum_of_bytes

    def crc32c(data: "Buffer") -> int:
        """Return the CRC32C of all bytes of ``data`` as an unsigned 32-bit number. Copies it."""
        return int(_sum_of_bytes(bytes(data)))

else:

    def crc32c(data: "Buffer") -> int:
        """Return the CRC32C of all bytes of ``data`` as an unsigned 32-bit number."""
        return _sum(data)
