"""Configuration: composing it with Hydra, checking it, and the names it may use."""
