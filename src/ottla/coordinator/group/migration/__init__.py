"""Groups between both protocols: from one to the other, and members of both in one."""
