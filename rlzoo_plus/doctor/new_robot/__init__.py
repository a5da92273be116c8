"""`new-robot`: a robot and its task from a URDF, which PyBullet reads."""

from rlzoo_plus.errors import ConfigError
from robots.engines import BULLET, EngineError, chosen_engine

try:
    chosen_engine(BULLET)
except EngineError as error:
    raise ConfigError(str(error)) from error
