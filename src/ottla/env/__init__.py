"""Ports to everything outside the process: clock, rng, disk, net, executor. Nothing else touches the outside."""
