"""Record batches: their header, checksum, compression, and the loops over the records inside."""
