"""Policies outside of Python: C99 source.

Optional: `commands/export.py` leads here, and nothing else.
"""
