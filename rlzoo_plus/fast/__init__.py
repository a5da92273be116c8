"""Trainings with the same numbers in less time; `rlzoo_plus.accelerators` alone imports it.

The folder can be deleted. It knows the insides of torch and Stable-Baselines3, so it is for the
versions that it was tested with.
"""

from importlib.metadata import version

# Beginnings of the versions that all tests of this room have passed with. Of Stable-Baselines3 they
# are whole: its methods were read, and are done here in another way.
TESTED = {"torch": ("2.13.",), "stable-baselines3": ("2.9.2",), "sb3-contrib": ("2.9.2",)}


def why_not_tested() -> str:
    """Return which library has another version, empty if all were tested."""
    for name, beginnings in TESTED.items():
        if not version(name).startswith(beginnings):
            known = " or ".join(f"{beginning}*" for beginning in beginnings)
            return f"it was tested with {name} {known}, and this is {version(name)}"
    return ""
