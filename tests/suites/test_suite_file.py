"""Suite files: the shipped ones fit the configurations, and mistakes are one line each."""

import pytest
from support.training import make_config

from rlzoo_plus.commands import dispatch
from rlzoo_plus.config.search_path import conf_dir
from rlzoo_plus.suites.suite_file import load_suite, shipped_suites

GOOD = "about: a test\ncells: {ppo:cartpole: {mean: 1.0, std: 0.5}}\n"


@pytest.mark.parametrize("name", shipped_suites())
def test_every_cell_of_a_shipped_suite_has_tuned_values(name):
    for cell in load_suite(name).cells:
        assert (conf_dir() / "tuned" / cell.algo / f"{cell.env}.yaml").is_file()


def test_the_published_table_is_whole_and_names_its_source():
    suite = load_suite("bullet")
    wanted = suite.chosen([])
    assert len(wanted) == 35
    assert len({cell.env for cell in wanted}) == 5
    assert all(cell.mean is not None and cell.std for cell in suite.cells)
    assert "rl-baselines3-zoo" in suite.source
    assert suite.licence == "MIT"


def test_the_values_of_agents_differ_from_the_tuned_ones():
    suite = load_suite("bullet")
    named = [cell for cell in suite.cells if cell.named_only]
    plain = {cell.name: cell for cell in suite.chosen([])}
    assert named
    for cell in named:
        before = plain[cell.name.removesuffix("@agent")]
        assert (cell.mean, cell.std, cell.episodes) == (before.mean, before.std, before.episodes)
        own = cell.overrides[len(before.overrides) :]
        # Each of the words changes something.
        for word in own:
            assert make_config(*before.words, word) != make_config(*before.words), word


def test_variants_cross_every_cell(tmp_path):
    text = "about: a\nvariants: {a: [], b: [seed=1]}\ncells: {ppo:cartpole: , a2c:cartpole: }\n"
    (tmp_path / "my.yaml").write_text(text)
    cells = load_suite(str(tmp_path / "my.yaml")).cells
    names = ["ppo:cartpole@a", "ppo:cartpole@b", "a2c:cartpole@a", "a2c:cartpole@b"]
    assert [cell.name for cell in cells] == names
    assert cells[1].words == ["algo=ppo", "env=cartpole", "seed=1"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD.replace("ppo:", "pppo:"), "cells.pppo:cartpole: unknown algorithm 'pppo'. Did you"),
        (GOOD.replace("cartpole", "cartpoel"), "unknown environment 'cartpoel'. Did you mean"),
        (GOOD.replace("1.0", ".nan"), "cells.ppo:cartpole.mean is nan: input should be a finite"),
        (GOOD.replace("0.5", "-0.5"), "cells.ppo:cartpole.std is -0.5: input should be greater"),
        (GOOD.replace("std:", "dev:"), "cells.ppo:cartpole: unknown key 'dev'"),
        (GOOD.replace(", std: 0.5", ""), "mean and std go together"),
        (GOOD.replace("about", "name"), "about is missing"),
        (GOOD.replace("ppo:cartpole", "cartpole"), "cells.cartpole: must be ALGO:ENV"),
        (GOOD + "overrides: [--config-dir=x]\n", "'--config-dir=x' is no override"),
        (GOOD + "about: twice\n", "it has a key twice"),
        ("cells: [", "A suite is plain YAML"),
        ("about: !!python/object:os.system x\n", "A suite is plain YAML"),
        ("[]", "the file is []: "),
        (None, "No such file"),
    ],
)
def test_a_bad_file_is_one_line_and_exit_code_2(tmp_path, capsys, text, said):
    file = tmp_path / "my.yaml"
    if text is not None:
        file.write_text(text)
    assert dispatch.run("benchmark", ["--suite", str(file)]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.err.startswith(f"error: {file}: ")
    assert printed.err.count("\n") == 1
    assert not printed.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--suite", "bulet"], "unknown suite 'bulet'. Did you mean 'bullet'?"),
        (["--suite", "smoke", "--cells", "ppo:cartpol"], "unknown cell of the suite smoke"),
        (["--suite", "smoke", "ppo:cartpole"], "Cells follow --cells"),
    ],
)
def test_a_name_that_is_not_there_is_one_line(here, capsys, words, said):
    assert dispatch.run("benchmark", words) == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert printed.count("\n") == 1


@pytest.mark.parametrize(
    "words", [["--seeds", "1,1"], ["--seeds", "-1"], ["--budget", "nan"], ["--budget", "0"]]
)
def test_odd_numbers_are_refused(words, capsys):
    with pytest.raises(SystemExit) as stopped:
        dispatch.run("benchmark", ["--suite", "smoke", *words])
    assert stopped.value.code == 2
    assert words[0] in capsys.readouterr().err
