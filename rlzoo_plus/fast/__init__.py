"""Trainings with the same numbers in less time; `rlzoo_plus.accelerators` alone imports it.

The folder can be deleted. It knows the insides of torch and Stable-Baselines3, so it is for the
versions that it was tested with.
"""

import hashlib
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

# Beginnings of the versions that all tests of this room have passed with. Of Stable-Baselines3 they
# are whole: its methods were read, and are done here in another way.
TESTED = {"torch": ("2.13.",), "stable-baselines3": ("2.9.2",), "sb3-contrib": ("2.9.2",)}
# The files of these methods, and a hash of all: one that was edited in place has the same version.
READ = {
    "stable_baselines3": (
        *("a2c/a2c.py", "dqn/dqn.py", "ppo/ppo.py", "sac/sac.py", "td3/td3.py"),
        *("common/base_class.py", "common/buffers.py", "common/off_policy_algorithm.py"),
        *("common/on_policy_algorithm.py", "common/policies.py", "common/utils.py"),
    ),
    "sb3_contrib": (
        *("crossq/crossq.py", "qrdqn/qrdqn.py", "tqc/tqc.py"),
        *("common/torch_layers.py", "common/utils.py"),
    ),
}
READ_HASH = "bb4234f46e5354a9"


def why_not_tested() -> str:
    """Return which library has another version or other files, empty if all were tested."""
    for name, beginnings in TESTED.items():
        if not version(name).startswith(beginnings):
            known = " or ".join(f"{beginning}*" for beginning in beginnings)
            return f"it was tested with {name} {known}, and this is {version(name)}"
    if hash_of_read() != READ_HASH:
        return "the files of stable-baselines3 or sb3-contrib are not those of their version"
    return ""


def hash_of_read() -> str:
    """Return a hash of the files in `READ`, 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for package, files in READ.items():
        spec = find_spec(package)
        if spec is not None and spec.origin is not None:
            for file in files:
                digest.update((Path(spec.origin).parent / file).read_bytes())
    return digest.hexdigest()[:16]
