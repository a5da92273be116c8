"""One run: composed, planned, claimed, trained, opened again."""
