"""Decides over the network: the server, its audit log, overrides, limits and shadows.

Optional: the verbs serve, audit, override and shadow-report lead here, and nothing else.
"""
