"""May you, and how much may you: principals, access control, quotas, users. Decisions only, over plain data."""
