"""Demonstrations: episodes of a policy or a robot as files, and learning from them.

Optional: the verbs `collect` and `datasets`, and names in `config/catalog.py`, lead here. A dataset
may be somebody else's: it is read as numbers, of bounded size, and nothing in it is executed.
"""
