"""Whole processes side by side: ours, rl_zoo3, and plain Stable-Baselines3, on the same job."""
