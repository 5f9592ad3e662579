# What ottla.records.columnar.columns needs of C; the interpreted form copies by slices.
from ottla.records.checksum cimport ottla_crc32c, ottla_crc32c_choose

cdef extern from "string.h" nogil:
    void copy_bytes "memcpy"(void *target, const void *source, size_t size_bytes)
