"""A whole node on a simulated world: time, disk, network and threads follow from one seed."""
