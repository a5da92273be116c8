"""From a configuration to a Stable-Baselines3 algorithm, and from a bundle to a policy."""
