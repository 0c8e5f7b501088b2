"""Row 4: transactions: which writes count together."""
