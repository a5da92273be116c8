"""Puts versions into a registry of models."""

from rlzoo_plus.models.model_records import largest_of

ABOUT = {"origin": "trained/cartpole_bullet", "which": "best", "step": 1, "algo": "ppo"}
ABOUT |= {"env": "CartPoleBullet-v0", "why": "a test"}


def put(registry, folder, name="cart", **about):
    """Register a folder; return the number of the version."""
    files = [p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()]
    wanted = [file for file in files if largest_of(file) is not None]
    return registry.put_version(name, folder, wanted, {**ABOUT, **about})[0].number
