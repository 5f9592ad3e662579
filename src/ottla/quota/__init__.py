"""How much a client may ask for, and how long it has to wait: arithmetic only, without I/O.

No module of this room has a clock; the time is an argument, in ms of a clock that never goes back.
A node without quotas imports nothing of it.
"""
