# What ottla.records.columnar.avro needs of C; the interpreted form copies by slices.
cimport cython
from ottla.records.columnar.avro_numbers cimport is_below, number_at, words_at
from ottla.records.columnar.avro_tables cimport *
from ottla.records.columnar.layout cimport ascend, clear
from ottla.records.numbers cimport copy, uint32_at


@cython.final
cdef class Walk:
    cdef int[::1] nodes
    cdef int[::1] branches
    cdef unsigned long long[::1] bounds
    cdef long long[::1] columns
    cdef const unsigned char[::1] data
    cdef long long at
    cdef long long stop
    cdef long long value
    cdef long long bare_left
    cdef bint filling
    cdef int sign
    cdef unsigned char[::1] octets
    cdef int[::1] ints
    cdef long long[::1] longs
    cdef unsigned long long[::1] wholes
    cdef int read_value(self, long long start, long long stop) noexcept nogil
    cdef inline int _number(self, int bytes_max) noexcept nogil
    cdef int _count(self, int column, long long more) noexcept nogil
    cdef int put_null(self, int node) noexcept nogil
    cdef int _put_nulls(self, int base) noexcept nogil
    cdef int put_malformed(self) noexcept nogil
    cdef int _read(self, int node) noexcept nogil
    cdef inline int _read_long(self, int kind, long long at) noexcept nogil
    cdef inline int _read_int(self, int base, long long at) noexcept nogil
    cdef inline int _read_float(self, long long size, long long at) noexcept nogil
    cdef inline int _read_boolean(self, int column, long long slot) noexcept nogil
    cdef inline int _read_size(self, int base, int varying) noexcept nogil
    cdef inline int _read_octets(self, int base, int column, long long at) noexcept nogil
    cdef int _read_fields(self, int base) noexcept nogil
    cdef int _read_union(self, int node) noexcept nogil
    cdef int _read_count(self, long long least) noexcept nogil
    cdef int _read_items(self, int node) noexcept nogil
    cdef bint _has_doubles(self, int keys, long long start) noexcept nogil
    cdef int _read_decimal(self, int base, long long to) noexcept nogil


@cython.final
cdef class Reader:
    cdef Walk _walk
    cdef bint _has_header
    cdef long long _schema_id
    cdef int _check(self, object data, int[::1] ends, Py_ssize_t rows)
    cdef int _judge(self, long long start, long long stop) noexcept nogil
