"""Row 0: identifiers, the error table, settings, and the world (clock, disk, network, random)."""
