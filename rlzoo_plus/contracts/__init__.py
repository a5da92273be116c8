"""Contracts: what parts of reinforcement learning promise each other, and SB3's parts as such."""
