"""Updates from recordings: the bits of Stable-Baselines3, with fewer calls."""
