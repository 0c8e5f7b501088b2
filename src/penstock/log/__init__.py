"""Row 2: one partition's bytes on one disk."""
