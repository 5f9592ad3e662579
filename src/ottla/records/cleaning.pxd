# What ottla.records.cleaning needs of C; the interpreted form copies by slices.
from ottla.records.checksum cimport ottla_crc32c, ottla_crc32c_choose
from ottla.records.cleaning_scope cimport *
from ottla.records.numbers cimport (
    copy, int32_at, int64_at, put_int32, put_int64, put_varint, uint32_at, varint_size, varlong_at,
)
from ottla.records.siphash cimport siphash
