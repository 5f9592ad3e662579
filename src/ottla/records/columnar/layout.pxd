# cython: boundscheck=False, wraparound=False, initializedcheck=False
# What ottla.records.columnar.layout says, for the C compiler: it stands in every kernel that cimports it.

cdef inline bint ascend(const int[::1] offsets, Py_ssize_t count, Py_ssize_t end) noexcept nogil:
    cdef Py_ssize_t at
    cdef int falls = 0
    if count < 0:
        return False
    for at in range(1, count + 1):
        falls |= offsets[at] < offsets[at - 1]
    return falls == 0 and offsets[0] >= 0 and offsets[count] <= end


cdef inline int check_validity(Py_ssize_t size, Py_ssize_t bit, Py_ssize_t count) except -1:
    if bit < 0 or (bit + count + 7) // 8 > size:
        raise ValueError("a column's validity is shorter than its rows")
    return 0


cdef inline bint is_valid(const unsigned char[::1] validity, Py_ssize_t bit) noexcept nogil:
    return (validity[bit >> 3] >> (bit & 7)) & 1


cdef inline int clear(unsigned char[::1] bits, Py_ssize_t at) noexcept nogil:
    bits[at >> 3] &= ~(1 << (at & 7)) & 0xFF
    return 0


cdef inline long long put_end(
    int[::1] ends, unsigned char[::1] bits, Py_ssize_t row, long long end, long long size
) noexcept nogil:
    if size < 0:
        clear(bits, row)
    else:
        end += size
    ends[row + 1] = <int> end
    return end
