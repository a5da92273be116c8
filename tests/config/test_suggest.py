"""What is said of a name that nobody knows."""

import pytest

from rlzoo_plus.config.search_path import conf_dir, group_options
from rlzoo_plus.errors import FEW, closest, unknown_name

ENVS = group_options("env", [conf_dir()])


def test_few_names_are_all_told():
    assert unknown_name("tracker", "wanbd", ["wandb", "mlflow"]) == (
        "unknown tracker 'wanbd'. Did you mean 'wandb'? Known: mlflow, wandb."
    )


def test_of_many_names_the_three_nearest_are_told_and_how_to_list_all():
    text = unknown_name("env", "cartpole_bulet", ENVS, "rlzoo-plus train --help")
    assert text == (
        "unknown env 'cartpole_bulet'. Did you mean 'cartpole_bullet'? Also near: cartpole, "
        f"cartpole_camera. All {len(ENVS)}: `rlzoo-plus train --help`."
    )


def test_names_that_are_not_near_are_no_suggestion():
    text = unknown_name("env", "zzz", ENVS)
    assert "Did you mean" not in text
    assert text.endswith(f" There are {len(ENVS)}.")
    assert sum(name in text.split("Nearest: ")[1] for name in ENVS) >= 3
    assert closest("zzz", ENVS) is None


@pytest.mark.parametrize("count", [FEW, FEW + 1])
def test_no_message_lists_dozens(count):
    names = [f"name_{number:03}" for number in range(count)]
    shown = [name for name in names if name in unknown_name("thing", "nome_001", names)]
    assert len(shown) == (FEW if count == FEW else 3)


def test_the_help_lists_what_messages_refer_to_it_for():
    from rlzoo_plus.commands.train_help import train_help
    from rlzoo_plus.config.catalog import ALGORITHMS, WRAPPERS

    words = set(train_help(["--help", "all"]).split())
    assert {*ENVS, *ALGORITHMS, *WRAPPERS} <= words
