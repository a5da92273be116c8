"""Where the models of robots are: files of the user, and those that come with PyBullet.

PyBullet has no wheel for Python 3.12 or later, and other engines need its models alone:

    python -m robots.engines.models

takes them out of its wheel for Python 3.11, and runs none of its code.
"""

import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

PACKAGE, VERSION = "pybullet_data", "3.2.7"
COMMAND = "python -m robots.engines.models"
_WHEEL = ("--python-version", "3.11", "--implementation", "cp", "--abi", "cp311")
_LARGEST_BYTES = 2**30


class ModelsError(RuntimeError):
    """The models cannot be fetched; the text says why."""


def models_folder() -> Path | None:
    """Return the folder of PyBullet's models, None where they are not installed."""
    try:
        spec = find_spec(PACKAGE)
    except ImportError:
        spec = None
    places = None if spec is None else spec.submodule_search_locations
    return Path(places[0]) if places else None


def found_file(path: str) -> Path:
    """Return a file of the user, or one of PyBullet's models.

    Raises:
        FileNotFoundError: There is none.
    """
    folder = models_folder()
    for place in (Path(path), *([] if folder is None else [folder / path])):
        if place.is_file():
            return place
    other = f"or fetch PyBullet's with `{COMMAND}`"
    if folder is not None:
        other = f"absolute or relative to {folder}"
    raise FileNotFoundError(f"{path!r} cannot be found. Give a path that exists, {other}.")


def fetch(into: Path) -> Path:
    """Put the models of PyBullet's wheel, which pip downloads, into a folder; return theirs.

    Raises:
        ModelsError: pip cannot download it, or the wheel holds something else.
    """
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", name]
        command += ["--only-binary=:all:", "--platform", "manylinux2014_x86_64", *_WHEEL]
        command += ["--disable-pip-version-check", f"pybullet=={VERSION}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = sorted(Path(name).glob("*.whl"))
        if done.returncode or not wheels:
            said = (done.stderr.strip() or "it says nothing").splitlines()[-1]
            raise ModelsError(f"pip cannot download pybullet=={VERSION}: {said}")
        return unpack(wheels[0], into)


def unpack(wheel: Path, into: Path) -> Path:
    """Put the models in a wheel into a folder; return theirs.

    Raises:
        ModelsError: It holds none, or names that lead elsewhere, or too much.
    """
    with zipfile.ZipFile(wheel) as archive:
        members = [one for one in archive.infolist() if one.filename.startswith(f"{PACKAGE}/")]
        if not members or any(".." in PurePosixPath(one.filename).parts for one in members):
            raise ModelsError(f"{wheel.name} is no wheel of PyBullet.")
        if sum(one.file_size for one in members) > _LARGEST_BYTES:
            raise ModelsError(f"{wheel.name} holds more than {_LARGEST_BYTES:,} bytes of models.")
        archive.extractall(into, members)
    return into / PACKAGE


def main() -> int:
    """Fetch the models if they are not there, and say where they are."""
    folder = models_folder()
    if folder is None:
        print("fetching PyBullet's models (a wheel of 100 MB, of which they are a part) ...")
        try:
            folder = fetch(Path(sysconfig.get_path("purelib")))
        except (ModelsError, OSError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    print(f"models in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
