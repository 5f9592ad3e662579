# cython: boundscheck=False, wraparound=False, initializedcheck=False
# What ottla.records.numbers says, for the C compiler: it stands in every kernel that cimports it.

cdef extern from "string.h" nogil:
    void copy_bytes "memcpy"(void *target, const void *source, size_t size_bytes)


cdef inline long long uint16_at(const unsigned char[::1] data, Py_ssize_t at) noexcept nogil:
    return _uint16(&data[at])


cdef inline long long uint32_at(const unsigned char[::1] data, Py_ssize_t at) noexcept nogil:
    return _uint32(&data[at])


cdef inline long long int32_at(const unsigned char[::1] data, Py_ssize_t at) noexcept nogil:
    return <int> _uint32(&data[at])


cdef inline long long int64_at(const unsigned char[::1] data, Py_ssize_t at) noexcept nogil:
    return <long long> ((<unsigned long long> _uint32(&data[at]) << 32) | _uint32(&data[at + 4]))


cdef inline (long long, Py_ssize_t) varint_at(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end
) noexcept nogil:
    cdef long long number
    if at < end and data[at] < 0x80:  # as most are
        return _signed(data[at]), at + 1
    number, at = _varlong(&data[0], at, end)
    if number != <int> number:
        return 0, -2
    return number, at


cdef inline (long long, Py_ssize_t) varlong_at(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end
) noexcept nogil:
    if at < end and data[at] < 0x80:
        return _signed(data[at]), at + 1
    return _varlong(&data[0], at, end)


cdef inline Py_ssize_t varint_size(long long number) noexcept nogil:
    cdef unsigned long long raw = <unsigned long long> (~number if number < 0 else number) >> 6
    cdef Py_ssize_t size = 1
    while raw:
        raw >>= 7
        size += 1
    return size


cdef inline Py_ssize_t put_varint(
    unsigned char[::1] out, Py_ssize_t at, long long number
) noexcept nogil:
    cdef unsigned long long raw = <unsigned long long> (~number if number < 0 else number)
    cdef unsigned long long low = ((raw & 0x3F) << 1) | (number < 0)
    raw >>= 6
    while raw:
        out[at] = <unsigned char> (low | 0x80)
        at += 1
        low = raw & 0x7F
        raw >>= 7
    out[at] = <unsigned char> low
    return at + 1


cdef inline int copy(
    const unsigned char[::1] source,
    Py_ssize_t start,
    unsigned char[::1] target,
    Py_ssize_t to,
    Py_ssize_t size,
) noexcept nogil:
    if size > 0:
        copy_bytes(&target[to], &source[start], size)
    return 0


cdef inline int copy_short(
    const unsigned char[::1] source,
    Py_ssize_t start,
    unsigned char[::1] target,
    Py_ssize_t to,
    Py_ssize_t size,
) noexcept nogil:
    if size <= 32 and len(source) - start >= 32 and len(target) - to >= 32:
        # Two moves of a register; what is copied too much lies within both, and is overwritten.
        copy_bytes(&target[to], &source[start], 32)
    else:
        copy(source, start, target, to, size)
    return 0


cdef inline int put_int32(unsigned char[::1] out, Py_ssize_t at, long long number) noexcept nogil:
    cdef int index
    for index in range(4):
        out[at + index] = <unsigned char> (number >> (24 - 8 * index))
    return 0


cdef inline int put_int64(unsigned char[::1] out, Py_ssize_t at, long long number) noexcept nogil:
    put_int32(out, at, number >> 32)
    return put_int32(out, at + 4, number)


# -- by pointers: so that nobody hands a whole memoryview over where the compiler makes a call ------


cdef inline unsigned int _uint16(const unsigned char *data) noexcept nogil:
    return (<unsigned int> data[0] << 8) | data[1]


cdef inline unsigned int _uint32(const unsigned char *data) noexcept nogil:
    return (_uint16(data) << 16) | _uint16(data + 2)


cdef inline long long _signed(unsigned long long raw) noexcept nogil:
    cdef long long number = <long long> (raw >> 1)
    if raw & 1:
        number = ~number
    return number


cdef inline (long long, Py_ssize_t) _varlong(
    const unsigned char *data, Py_ssize_t at, Py_ssize_t end
) noexcept nogil:
    cdef unsigned long long raw = 0
    cdef unsigned long long byte
    cdef int shift = 0
    while at < end:
        byte = data[at]
        at += 1
        if shift == 63 and byte > 1:
            return 0, -2
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return _signed(raw), at
        shift += 7
    return 0, -1
