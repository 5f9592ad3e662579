"""One segment of a log: its file of batches, its indexes, and how to search them."""
