"""The parts of the exactly-once campaign, ``tests/campaigns/exactly_once.py``."""
