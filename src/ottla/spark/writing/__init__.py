"""The sink: rows become record batches, in tasks or, exactly once, in one transaction."""
