"""Requests in, responses out: the router, and one thin handler per API. No storage in here."""
