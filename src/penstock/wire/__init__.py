"""Row 1: bytes to messages and record batches and back, every version, no I/O."""
