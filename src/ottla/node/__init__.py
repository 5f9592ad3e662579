"""One node put together: its data, its work and its doors, opened in this order."""
