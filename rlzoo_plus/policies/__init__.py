"""What a trained policy does and why: replays, robustness, attribution, audits."""
