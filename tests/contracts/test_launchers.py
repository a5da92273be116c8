"""Every shipped launcher keeps to the suite that a launcher of a user's own is given."""

import os

import pytest
from support.launchers import KINDS, launcher_of

from rlzoo_plus.testing import LauncherContract

pytestmark = [
    pytest.mark.skipif(os.name == "nt", reason="needs sessions"),
    pytest.mark.training,
]


class TestEveryLauncher(LauncherContract):
    @pytest.fixture(scope="class", params=KINDS)
    @classmethod
    def launcher(cls, request, tmp_path_factory):
        with launcher_of(request.param, tmp_path_factory.mktemp(request.param)) as made:
            yield made

    @pytest.mark.slow
    def test_a_small_sweep_trains(self, launcher, workplace):
        super().test_a_small_sweep_trains(launcher, workplace)
