"""The parts of the campaign ``tests/campaigns/administration.py``."""
