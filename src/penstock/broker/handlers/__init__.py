"""One file for each API, named by its key."""
