"""Produce: the ordinary way, the direct way, and what transactions and long requests need."""
