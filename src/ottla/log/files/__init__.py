"""The names of a data directory's files, its small files, and the faults of all."""
