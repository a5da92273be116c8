"""Puts versions into a registry of models."""

import shutil

from support.serving import write_policy

from rlzoo_plus.analysis.shipped_runs import trained_dir
from rlzoo_plus.models.model_records import largest_of

ABOUT = {"origin": "trained/cartpole_bullet", "which": "best", "step": 1, "algo": "ppo"}
ABOUT |= {"env": "CartPoleBullet-v0", "why": "a test"}


def put(registry, folder, name="cart", **about):
    """Register a folder; return the number of the version."""
    files = [p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()]
    wanted = [file for file in files if largest_of(file) is not None]
    return registry.put_version(name, folder, wanted, {**ABOUT, **about})[0].number


def put_served(registry, folder, version, *, name="tiny", adds=0.0, is_broken=False, **options):
    """Register the policy of `write_policy` as a version that is served at once."""
    shutil.copytree(trained_dir() / "cartpole_bullet", folder)
    write_policy(folder / "deploy", version + adds, **options)
    if is_broken:
        (folder / "deploy/policy.onnx").write_bytes(b"broken")
    assert put(registry, folder, name) == version
