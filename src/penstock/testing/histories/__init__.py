"""What clients of a run did, were told and saw, and the judge who finds every promise that was broken."""
