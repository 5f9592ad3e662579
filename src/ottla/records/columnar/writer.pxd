# What ottla.records.columnar.writer needs of C; the interpreted form copies by slices.
cdef extern from "string.h" nogil:
    void copy_bytes "memcpy"(void *target, const void *source, size_t size_bytes)
