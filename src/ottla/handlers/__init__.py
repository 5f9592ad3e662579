"""Turns requests into responses: the router, and one thin handler per API. Holds no storage."""
