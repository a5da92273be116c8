"""Algorithms that neither Stable-Baselines3 nor sb3-contrib has.

Optional: names in `config/catalog.py` lead here. They are on SB3's own base classes.
"""
