"""Makes the driver that a name and options ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ValidationError
from yaml import YAMLError

from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.drivers.driver import Driver
from rlzoo_plus.errors import ConfigError, unknown_name
from rlzoo_plus.registry import Registry

DRIVERS = Registry(
    "driver",
    "driver",
    {
        "sim": "rlzoo_plus.drivers.sim_driver:SimDriver",
        "recorded": "rlzoo_plus.drivers.recorded_driver:RecordedDriver",
        "rosbridge": "rlzoo_plus.drivers.rosbridge_driver:RosbridgeDriver",
        "socket": "rlzoo_plus.drivers.socket_driver:SocketDriver",
    },
    bases=("rlzoo_plus.drivers.driver:Driver",),
)


def make_driver(name: str, options: Mapping[str, Any] | Sequence[str] = ()) -> Driver:
    """Return a driver that has not connected yet.

    Args:
        name: One of `DRIVERS`, or the dotted path of an own class.
        options: The fields of the class's `Settings`, by name, or as `key=value`. A class without
            `Settings` gets them as keyword arguments.

    Raises:
        ConfigError: The name or an option is unknown, or a value is not allowed.
    """
    kind = DRIVERS.load(name)
    given = _read(options) if not isinstance(options, Mapping) else dict(options)
    settings: type[BaseModel] | None = getattr(kind, "Settings", None)
    if settings is None:
        try:
            driver: Driver = kind(**given)
        except TypeError as error:
            raise ConfigError(f"driver {name}: {one_line(error)}.") from error
        return driver
    for key in given:
        if key not in settings.model_fields:
            raise ConfigError(unknown_name(f"option of driver {name}", key, settings.model_fields))
    try:
        checked = settings(**given)
    except ValidationError as error:
        raise ConfigError(f"driver {name}: {one_line(error)}.") from error
    driver = kind(checked)
    return driver


def _read(options: Sequence[str]) -> dict[str, Any]:
    """Return the values of `key=value`, each YAML; dots in a key lead into mappings."""
    for option in options:
        if not option.partition("=")[0] or "=" not in option:
            raise ConfigError(f"{option!r} is no option of a driver. Write key=value.")
    try:
        found: Any = OmegaConf.to_container(OmegaConf.from_dotlist([*options]), resolve=False)
    except (OmegaConfBaseException, YAMLError, ValueError) as error:
        raise ConfigError(f"options of the driver: {one_line(error)}.") from error
    return {str(key): value for key, value in found.items()}
