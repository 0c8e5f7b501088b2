"""Row 7: the simulated world, embedded brokers and fixtures, for users and for us."""
