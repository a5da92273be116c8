"""Writes the two files of a new robot, and refuses names that could not work."""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
from pathlib import Path

from rlzoo_plus.artifacts.atomic import write_atomic
from rlzoo_plus.config.compose import conf_dir
from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.scaffold.survey import RobotSurvey
from rlzoo_plus.scaffold.text import NewRobot, python_text, yaml_text
from rlzoo_plus.scaffold.urdf import UrdfFile
from rlzoo_plus.scaffold.values import joint_values


def paths_for(name: str, folder: Path) -> tuple[Path, Path]:
    """Return where the module and the configuration of a robot go."""
    return folder / f"{name}.py", folder / "conf" / "env" / f"{name}.yaml"


def check_name(name: str, folder: Path) -> None:
    """Refuse a name under which the module or the configuration would not be found.

    Raises:
        ConfigError: It is no module name, or something else has it.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        plain = re.sub(r"\W+", "_", name.lower(), flags=re.ASCII).strip("_0123456789")
        hint = f" Did you mean {plain!r}?" if plain and plain != name else ""
        raise ConfigError(
            f"{name!r} is no name for a module: it needs small letters, digits and _, a letter "
            f"first, and must be no word of Python.{hint}"
        )
    module, config = paths_for(name, folder)
    shipped = conf_dir() / "env" / f"{name}.yaml"
    if shipped.is_file() and shipped.resolve() != config.resolve():
        raise ConfigError(
            f"env={name} exists already, in {shipped.parent}, and yours would hide it. Choose "
            f"another name, such as my_{name}."
        )
    if name in sys.stdlib_module_names or _is_taken(name, module):
        raise ConfigError(
            f"a module {name} exists already, and one of the two would hide the other. Choose "
            f"another name, such as my_{name}."
        )


def write_robot(
    new: NewRobot, urdf: UrdfFile, robot: RobotSurvey, *, force: bool = False
) -> list[Path]:
    """Write the module and the configuration file; return where they are.

    Raises:
        ConfigError: One exists already, or cannot be written.
    """
    module, config = paths_for(new.module, new.folder)
    there = [str(path) for path in (module, config) if path.exists()]
    if there and not force:
        raise ConfigError(
            f"{' and '.join(there)} exist{'s' if len(there) == 1 else ''} already. Choose another "
            "name, or replace it with --force."
        )
    joints = joint_values(robot, new.mode, is_free=new.is_free)
    texts = {module: python_text(new, urdf, robot, joints), config: yaml_text(new)}
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, text)
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be written: {error.strerror}. Choose another --directory."
            ) from error
    return list(texts)


def _is_taken(name: str, module: Path) -> bool:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return True
    return spec is not None and (spec.origin is None or Path(spec.origin) != module.resolve())
