# What ottla.records.kernels needs of C.
from ottla.records.checksum cimport ottla_crc32c, ottla_crc32c_choose, ottla_crc32c_portable
