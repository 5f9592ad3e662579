# cython: boundscheck=False, wraparound=False, initializedcheck=False
# What ottla.records.columnar.avro_numbers says, for the C compiler: it stands in the kernel.
from ottla.records.columnar.avro_tables cimport BAD_NUMBER, BAD_VARINT, TRUNCATED


cdef inline (long long, long long) number_at(
    const unsigned char[::1] data, long long at, long long stop, int bytes_max
) noexcept nogil:
    cdef unsigned long long byte
    cdef unsigned long long raw
    cdef long long number
    cdef int shift = 7
    if at >= stop:
        return 0, -TRUNCATED
    raw = data[at]
    at += 1
    if raw > 0x7F:
        raw &= 0x7F
        while True:
            if at >= stop:
                return 0, -TRUNCATED
            byte = data[at]
            at += 1
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift >= bytes_max * 7:
                return 0, -BAD_VARINT
        if bytes_max == 5:
            raw &= <unsigned int> 0xFFFFFFFF
    number = <long long> (raw >> 1)
    if raw & 1:
        number = ~number
    return number, at


cdef inline (unsigned long long, unsigned long long, int) words_at(
    const unsigned char[::1] data, long long at, long long size
) noexcept nogil:
    cdef int sign = 0xFF if data[at] > 0x7F else 0
    cdef unsigned long long high = 0
    cdef unsigned long long low = 0
    cdef unsigned long long byte
    cdef long long index
    if sign:
        high = ~high
        low = ~low
    for index in range(size):
        byte = data[at + index]
        if index < size - 16 and byte != <unsigned int> sign:
            return 0, 0, BAD_NUMBER
        high = (high << 8) | (low >> 56)
        low = (low << 8) | byte
    return high, low, BAD_NUMBER if (high >> 63 != 0) != (sign != 0) else 0


cdef inline bint is_below(
    unsigned long long high,
    unsigned long long low,
    unsigned long long bound_high,
    unsigned long long bound_low,
) noexcept nogil:
    if high >> 63:
        low = ~low + 1
        high = ~high
        if low == 0:
            high += 1
    return high < bound_high or (high == bound_high and low < bound_low)
