"""Studies: searching for good values, and finding out how good they really are.

What is wrong in settings, a space, a storage or a stored study is a `ConfigError` that names the
value, the rule and the mend, wherever it is found.
"""
