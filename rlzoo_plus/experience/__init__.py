"""How experience is gathered, kept and drawn: exploration, prioritized replay, the action log."""
