"""The wheel of the rlzoo_plus that runs, for machines in a cloud: they train with the same code."""

from __future__ import annotations

import base64
import hashlib
import re
import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path

from rlzoo_plus import __version__
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store.zips import zip_files

# All that a run or a trial may name with the shipped configurations.
EXTRAS = ("aws", "bullet", "classic", "export", "mlflow", "panda", "tune", "wandb")
WHEEL = f"rlzoo_plus-{__version__}-py3-none-any.whl"
_DISTRIBUTION = "rlzoo-plus"
_EXTRA = re.compile(r"(?P<requirement>[^;]+?)\s*;\s*extra\s*==\s*['\"](?P<extra>[\w-]+)['\"]")
_ABOUT = "Wheel-Version: 1.0\nGenerator: rlzoo_plus\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@cache
def package_files() -> dict[str, bytes]:
    """Return the files of the package by their names in a wheel, without its metadata."""
    root = Path(__file__).resolve().parents[2]
    is_checkout = (root / "pyproject.toml").is_file() and (root / "conf").is_dir()
    files = _of_checkout(root) if is_checkout else _of_installation()
    return {name: files[name].read_bytes() for name in sorted(files)}


@cache
def dependencies() -> tuple[str, ...]:
    """Return the requirements of a worker, as lines for pip; `constraints.txt` has versions."""
    found = []
    for line in _distribution().requires or ():
        of_extra = _EXTRA.fullmatch(line)
        if of_extra is None:
            found.append(line)
        elif of_extra["extra"] in EXTRAS:
            found.append(of_extra["requirement"])
    return tuple(sorted(set(found)))


@cache
def package_hash() -> str:
    """Return the SHA-256 of what a worker consists of: the package and its dependencies."""
    digest = hashlib.sha256(repr((__version__, dependencies())).encode())
    for name, data in package_files().items():
        digest.update(f"\0{name}\0".encode() + hashlib.sha256(data).digest())
    return digest.hexdigest()


def make_wheel() -> bytes:
    """Return the wheel, to be named `WHEEL`; the same files make the same bytes."""
    info = f"rlzoo_plus-{__version__}.dist-info"
    distribution = _distribution()
    files = dict(package_files())
    for name in ("METADATA", "entry_points.txt"):
        files[f"{info}/{name}"] = (distribution.read_text(name) or "").encode()
    for path in distribution.files or ():
        if path.parent.name == "licenses":
            files[f"{info}/licenses/{path.name}"] = path.read_binary()
    files[f"{info}/WHEEL"] = _ABOUT.encode()
    record = f"{info}/RECORD"
    lines = [f"{name},sha256={_record_hash(data)},{len(data)}" for name, data in files.items()]
    return zip_files({**files, record: "\n".join([*lines, f"{record},,\n"]).encode()})


def _of_checkout(root: Path) -> dict[str, Path]:
    """Return what hatch packs, as pyproject.toml says."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    hatch = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    places = {name: name for name in hatch["packages"]} | hatch["force-include"]
    found = {}
    for place, name in places.items():
        path = root / place
        for file in [path] if path.is_file() else path.rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                found[f"{name}/{file.relative_to(path).as_posix()}".removesuffix("/.")] = file
    return found


def _of_installation() -> dict[str, Path]:
    """Return what an installer has written, without scripts and compiled modules."""
    return {
        path.as_posix(): Path(str(path.locate()))
        for path in _distribution().files or ()
        if ".." not in path.parts
        and "__pycache__" not in path.parts
        and not path.parts[0].endswith((".dist-info", ".pth"))
    }


def _distribution() -> metadata.Distribution:
    try:
        return metadata.distribution(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        raise ConfigError(
            "rlzoo-plus is not installed here, so no machine can be given it. Install it: pip "
            "install -e ."
        ) from None


def _record_hash(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
