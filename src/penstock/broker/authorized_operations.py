"""What a caller may do with a resource is told as a bit field, to those who ask for it; this is what the others get."""

from __future__ import annotations

NOT_ASKED = -(2**31)
