"""Ports to all that is outside: clock, rng, disk, net, executor. Nothing else touches it."""
