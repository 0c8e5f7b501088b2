"""Row 3: the leader's and the follower's rules for one partition."""
