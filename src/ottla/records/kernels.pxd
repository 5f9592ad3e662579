# What ottla.records.kernels needs of C.
from ottla.records.checksum cimport ottla_crc32c, ottla_crc32c_choose, ottla_crc32c_portable
from ottla.records.numbers cimport int32_at, int64_at, uint16_at, uint32_at, varint_at, varlong_at
