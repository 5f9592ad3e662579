"""Several nodes on one host: a process that owns what they share, and one process for each."""
