"""The tasks that read: ranges of offsets become Arrow batches. Runs in Spark's workers."""
