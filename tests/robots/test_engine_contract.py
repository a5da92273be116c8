"""Both engines keep the contract of engines."""

from rlzoo_plus.testing import EngineContract


class TestBullet(EngineContract):
    engine = "bullet"


class TestMujoco(EngineContract):
    engine = "mujoco"
