"""Row 4: who leads what; which topics exist."""
