"""The offset map of one cleaning: for each key in the dirty part of a log, its last offset.

Bounded memory: 24 bytes a slot, so many as ``log.cleaner.dedupe.buffer.size`` holds and the dirty
part can need at most, and they cost memory only when they are used. A key counts by its 128-bit
hash (SipHash with a seed of its own in each cleaning): two keys that meet would lose one of them a
record, and neither chance nor who writes keys can bring that about. The loops are in
``ottla.records.cleaning``. Source: Kafka's SkimpyOffsetMap, which keeps 40 bytes a slot.
"""

from array import array

from ottla.env.rng import Rng
from ottla.records import cleaning_scope as fields


class OffsetMap:
    """Last offsets by key, and the scope in which the kernel's loops work."""

    __slots__ = ("scope", "table")

    def __init__(self, rng: Rng, *, buffer_bytes: int, load_factor: float, keys_max: int) -> None:
        """Take room for ``keys_max`` keys, but no more than ``buffer_bytes``.

        ``load_factor``: how full the slots may become; fuller is slower.
        """
        slots = min(int(keys_max / load_factor) + 2, buffer_bytes // fields.SLOT_BYTES)
        slots = max(slots, 2)
        # Zeros that nobody has touched yet take no memory.
        self.table = memoryview(bytearray(slots * fields.SLOT_BYTES)).cast("Q")
        self.scope = array("q", bytes(8 * fields.SCOPE_SIZE))
        """The kernel's ``scope``, for mapping and for the filter that follows."""
        seed = rng.random_bytes(16)
        self.scope[fields.SEED_LOW] = int.from_bytes(seed[:8], "big", signed=True)
        self.scope[fields.SEED_HIGH] = int.from_bytes(seed[8:], "big", signed=True)
        self.scope[fields.CAPACITY] = max(int(slots * load_factor), 1)
        self.scope[fields.NEXT_OFFSET] = -1
        self.scope[fields.LATEST_OFFSET] = -1

    @property
    def key_count(self) -> int:
        """Number of keys in the map."""
        return self.scope[fields.USED]

    @property
    def capacity(self) -> int:
        """How many keys it takes."""
        return self.scope[fields.CAPACITY]
