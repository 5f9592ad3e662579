# What ottla.records.columnar.columns needs of C; the interpreted form copies by slices.
cimport cython
from ottla.records.checksum cimport ottla_crc32c, ottla_crc32c_choose
from ottla.records.numbers cimport (
    copy_short, int32_at, int64_at, uint16_at, uint32_at, varint_at, varlong_at,
)
from ottla.records.columnar.layout cimport clear, put_end
from ottla.records.columnar.scope cimport *


@cython.final
cdef class Filler:
    cdef const unsigned char[::1] _view
    cdef long long[::1] _scope
    cdef int[::1] _key_ends
    cdef unsigned char[::1] _key_bits
    cdef unsigned char[::1] _key_data
    cdef int[::1] _value_ends
    cdef unsigned char[::1] _value_bits
    cdef unsigned char[::1] _value_data
    cdef long long[::1] _offsets
    cdef long long[::1] _timestamps
    cdef unsigned char[::1] _timestamp_bits
    cdef int[::1] _types
    cdef int[::1] _header_ends
    cdef unsigned char[::1] _header_bits
    cdef int[::1] _name_ends
    cdef unsigned char[::1] _name_data
    cdef int[::1] _content_ends
    cdef unsigned char[::1] _content_bits
    cdef unsigned char[::1] _content_data
    cdef int _take_in(self, const unsigned char[::1] view, bint only_records)
    cdef int _check(self, Py_ssize_t size)
    cdef int _fill(self, bint only_records) noexcept nogil
    cdef int _begin_batch(self) noexcept nogil
    cdef inline long long _sum(self, Py_ssize_t at, long long size) noexcept nogil
    cdef inline int _read_header(self, Py_ssize_t position) noexcept nogil
    cdef inline int _end_batch(self) noexcept nogil
    cdef int _take_records(self) noexcept nogil
    cdef inline long long _room_bytes(self) noexcept nogil
    cdef inline int _put_numbers(
        self, Py_ssize_t row, int wanted, long long offset, long long timestamp
    ) noexcept nogil
    cdef inline int _put_timestamp(self, Py_ssize_t row, long long delta) noexcept nogil
    cdef Py_ssize_t _take_headers(
        self, Py_ssize_t row, Py_ssize_t at, Py_ssize_t stop
    ) noexcept nogil

cdef inline (Py_ssize_t, Py_ssize_t, long long, long long) _record_head(
    const unsigned char[::1] view, Py_ssize_t at, Py_ssize_t end
) noexcept nogil

cdef inline (Py_ssize_t, long long) _take_octets(
    const unsigned char[::1] view, Py_ssize_t at, Py_ssize_t stop, unsigned char[::1] target, long long to, bint is_wanted
) noexcept nogil

cdef inline bint _is_plain(
    const unsigned char[::1] view, Py_ssize_t at, long long size
) noexcept nogil
