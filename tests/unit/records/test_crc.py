import mmap
from array import array

import pytest

from ottla.records.crc import crc32c

CHECK = 0xE3069283  # of "123456789", from the catalogue of CRCs


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda d: array("B", d)])
def test_the_catalogues_check_value_over_any_buffer(kind):
    assert crc32c(kind(b"123456789")) == CHECK


def test_a_slice_is_summed_where_it_lies():
    with mmap.mmap(-1, 4096) as mapped:
        mapped[5:14] = b"123456789"
        with memoryview(mapped) as view, view[5:14] as part:
            assert crc32c(part) == CHECK


def test_nothing_sums_to_zero():
    assert crc32c(b"") == 0
