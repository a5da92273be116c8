"""Many agents in one world, which share a policy."""
