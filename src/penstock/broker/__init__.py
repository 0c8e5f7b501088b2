"""Row 5: the shell: listeners, connections, one thin handler per API, the objects that own a partition."""
