# cython: boundscheck=False, wraparound=False, initializedcheck=False
# What ottla.records.siphash says, for the C compiler: it stands in every kernel that cimports it.

ctypedef unsigned long long Word


cdef inline (unsigned long long, unsigned long long) siphash(
    const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t end, Word seed_low, Word seed_high
) noexcept nogil:
    cdef Word a = seed_low ^ <Word> 0x736F6D6570736575  # "somepseu", and so on
    cdef Word b = seed_high ^ <Word> 0x646F72616E646F6D ^ 0xEE
    cdef Word c = seed_low ^ <Word> 0x6C7967656E657261
    cdef Word d = seed_high ^ <Word> 0x7465646279746573
    cdef Word low = 0
    cdef Word word
    cdef Py_ssize_t size = end - start
    cdef Py_ssize_t words = size >> 3
    cdef Py_ssize_t at = start
    cdef Py_ssize_t step
    cdef int index
    for step in range(words + 5):
        word = 0
        if step < words:
            for index in range(8):
                word |= <Word> data[at + index] << (8 * index)
            at += 8
        elif step == words:
            for index in range(<int> (size & 7)):
                word |= <Word> data[at + index] << (8 * index)
            word |= <Word> (size & 0xFF) << 56
        elif step == words + 1:
            c ^= 0xEE
        elif step == words + 3:
            low = a ^ b ^ c ^ d
            b ^= 0xDD
        d ^= word
        for index in range(2):
            a += b
            b = ((b << 13) | (b >> 51)) ^ a
            a = (a << 32) | (a >> 32)
            c += d
            d = ((d << 16) | (d >> 48)) ^ c
            a += d
            d = ((d << 21) | (d >> 43)) ^ a
            c += b
            b = ((b << 17) | (b >> 47)) ^ c
            c = (c << 32) | (c >> 32)
        a ^= word
    return low, a ^ b ^ c ^ d
