"""Row 1: the znode tree, the keeper, the client, and one class for each znode of ours."""
