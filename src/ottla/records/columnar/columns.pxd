# What ottla.records.columnar.columns needs of C; the interpreted form copies by slices.
from ottla.records.checksum cimport ottla_crc32c, ottla_crc32c_choose
from ottla.records.numbers cimport (
    copy, copy_bytes, int32_at, int64_at, uint16_at, uint32_at, varint_at, varlong_at,
)
from ottla.records.columnar.scope cimport *
