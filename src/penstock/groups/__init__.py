"""Row 4: consumer groups: who reads what, and how far they have come."""
