"""`rlzoo-plus report --appendix`: what a paper's appendix has to say about runs."""

import json

import pytest
from support.tex import read_table
from support.written_runs import write_run

from rlzoo_plus.analysis.index import load_runs
from rlzoo_plus.commands.dispatch import run as run_verb
from rlzoo_plus.dashboard.appendix import appendix

pytestmark = pytest.mark.usefixtures("here")


def write_finished(root, algo="ppo", seed=0, env="hopper", provenance=None, **hyperparams):
    run = write_run(root, algo, env, seed, hyperparams=hyperparams, n_envs=8)
    run.write_result({**run.read_result(), "training_time_s": 1800.0})
    about = {"python": "3.11", "packages": {"torch": "2.13"}, "machine": {"cores": 2}}
    (run.path / "provenance.json").write_text(json.dumps({**about, **(provenance or {})}))
    return run


@pytest.fixture
def written(tmp_path):
    """Return the appendix of the runs in a folder, with these defaults of every algorithm."""

    def make(kind=".tex", **defaults):
        return appendix(load_runs([tmp_path / "s"]), kind, lambda _: defaults)

    return make


def rows_of(text):
    return {cells[0]: cells[1:] for cells in read_table(text)[1] if cells}


def test_the_command_tells_what_differs_from_the_library_for_each_algorithm(tmp_path, capsys):
    for seed in (0, 1, 2, 5):
        write_finished(tmp_path / "s", "ppo", seed, gamma=0.98, n_steps=2048, ent_coef=0.0)
        write_finished(tmp_path / "s", "sac", seed, gamma=0.99, train_freq=1, tau=0.02)
    assert run_verb("report", ["s", "--appendix", "a.tex"]) == 0
    assert capsys.readouterr().out == "a.tex\n"
    assert not (tmp_path / "report.html").exists()
    caption, rows = read_table((tmp_path / "a.tex").read_text())
    assert "*: the default" in caption
    assert rows == [
        ["", "ppo", "sac"],
        ["gamma", "0.98", "0.99*"],
        ["n\\_timesteps", "4000", "4000"],
        ["n\\_envs", "8", "8"],
        ["tau", "-", "0.02"],
        [],
        ["runs", "4", "4"],
        ["seeds", "0 to 2, 5", "0 to 2, 5"],
        ["environments", "hopper", "hopper"],
        ["training time of all runs [h]", "2", "2"],
    ]


def test_the_report_is_written_beside_it_if_it_is_named(tmp_path):
    write_finished(tmp_path / "s")
    assert run_verb("report", ["s", "--appendix", "a.md", "--out", "x.html"]) == 0
    assert (tmp_path / "x.html").is_file()
    assert "| runs | 1 |" in (tmp_path / "a.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["s", "--appendix", "a.pdf"], "LaTeX or Markdown"),
        (["s", "--appendix", "s/hopper/ppo/s0/config.yaml/a.tex"], "cannot be written"),
        (["going", "--appendix", "a.tex"], "no run is finished yet"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, capsys, arguments, said):
    write_finished(tmp_path / "s")
    write_run(tmp_path / "going", state="interrupted")
    assert run_verb("report", arguments) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1


def test_values_that_the_environment_decides_name_it(tmp_path, written):
    for env, gamma in (("ant", 0.9), ("hopper", 0.99)):
        for seed in (0, 1):
            write_finished(tmp_path / "s", "ppo", seed, env, gamma=gamma, rate=0.1 * (1 + seed))
    rows = rows_of(written())
    assert rows["gamma"] == ["0.9 (ant), 0.99 (hopper)"]
    assert rows["rate"] == ["0.1, 0.2"]


def test_of_many_values_the_number_is_told(tmp_path, written):
    for seed in range(6):
        write_finished(tmp_path / "s", "ppo", seed, rate=seed / 10)
    assert rows_of(written())["rate"] == ["6 values"]


def test_defaults_that_are_tuples_and_booleans_are_compared_by_what_they_mean(tmp_path, written):
    write_finished(tmp_path / "s", "sac", betas=[0.9, 0.99], flag=1, gamma=0.99)
    rows = rows_of(written(betas=(0.9, 0.99), flag=True, gamma=0.99))
    assert {"betas", "gamma"}.isdisjoint(rows)
    assert rows["flag"] == ["1"]


def test_versions_and_machines_are_told_once_for_each_kind(tmp_path, written):
    for seed in range(3):
        git = {"git": {"commit": f"{'ab' * 20}", "dirty": seed == 2}}
        write_finished(tmp_path / "s", "ppo", seed, provenance=git)
    facts = written(".md").split("\n\n")[2:]
    assert [fact.strip() for fact in facts] == [
        "Software: Python 3.11, torch 2.13.",
        "Code (2 of 3 runs): commit abababababab.",
        "Code (1 of 3 runs): commit abababababab with changes.",
        "Machine: 2 cores.",
    ]


def test_names_and_values_of_strangers_stay_text(tmp_path, written):
    evil = r"\input{/etc/passwd} 50% of #1_$x$ & {~^<|>"
    about = {"python": evil, "packages": {evil: evil}, "machine": {"processor": evil}}
    write_finished(tmp_path / "s", "p&_%o", 0, "h#_{x", about, **{"a_%&": evil, "[b]": "*c"})
    text = written()
    assert r"\input" not in text
    _, rows = read_table(text)
    assert ["{}[b]", "*c"] in rows
    for fact in text.split("\\end{table}")[1].splitlines():
        read_table(f"\\caption{{{fact}}}\n\\begin{{tabular}}{{l}}\n\\end{{tabular}}")


def test_a_class_that_only_a_run_names_is_not_imported(tmp_path):
    (tmp_path / "evil.py").write_text("open('ran', 'w')\nclass Algo: pass\n")
    write_finished(tmp_path / "s", "evil:Algo", gamma=0.99)
    assert run_verb("report", ["s", "--appendix", "a.md"]) == 0
    assert not (tmp_path / "ran").exists()
    assert "| gamma | 0.99 |" in (tmp_path / "a.md").read_text()
