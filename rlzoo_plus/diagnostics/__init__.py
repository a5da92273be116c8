"""Diagnostics: acts with a trained policy and looks at what it does."""
