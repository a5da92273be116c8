"""Preferences: which of two clips is better, and a reward that is learned from the answers.

Optional: the verb `prefer` and a name in `config/catalog.py` lead here. Clips, answers and reward
models may be somebody else's: they are read as numbers of bounded size, and nothing is executed.
"""
