"""Row 7: commands, the only place that wires everything and exits the process."""
