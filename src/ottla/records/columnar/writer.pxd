# What ottla.records.columnar.writer needs of C; the interpreted form copies by slices.
from ottla.records.columnar.layout cimport ascend, check_validity, is_valid
from ottla.records.numbers cimport copy, put_varint, varint_size
