"""Launchers: where jobs run, one protocol for each kind of machine."""
