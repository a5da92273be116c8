"""Benchmark suites: what they train, and the table that they print."""

import pytest
from support.written_runs import write_run

from rlzoo_plus.commands.benchmark import main
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.load import load
from rlzoo_plus.sweeps import suites
from rlzoo_plus.sweeps.suites import SUITES, run_suite, suite_table


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("name", SUITES)
def test_every_pair_of_a_suite_composes_with_values_of_its_own(name):
    for algo, envs in SUITES[name].pairs.items():
        for env in envs:
            config = load([f"algo={algo}", f"env={env}", *SUITES[name].overrides])
            assert (config.algo.name, config.env.name) == (algo, env)


def test_a_suite_is_a_sweep_for_each_algorithm(monkeypatch, tmp_path):
    asked = []

    class Swept:
        path = tmp_path

    monkeypatch.setattr(suites, "sweep", lambda words: asked.append(words) or Swept())
    assert run_suite("robots", range(2), ["infra.workers=2"]) == [tmp_path, tmp_path]
    assert [words[0] for words in asked] == ["algo=ppo", "algo=her"]
    assert asked[1][1:] == [
        "env=franka_push", "infra.workers=2", "sweep=benchmark-robots-her", "seed=0,1"
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="'smoke'"):
        run_suite("smok", range(2))


def test_the_table_has_a_row_for_each_pair_beside_published_scores(tmp_path):
    for algo in ("a2c", "ppo"):
        for seed in range(3):
            write_run(tmp_path / algo, algo=algo, seed=seed)
    table, notes = suite_table([tmp_path / "a2c", tmp_path / "ppo"])
    rows = [line for line in table.splitlines() if line.startswith("|")]
    assert not notes
    assert len(rows) == 4
    assert [row.split("|")[2].strip() for row in rows[2:]] == ["a2c", "ppo"]
    assert rows[0].split("|")[7].strip() == "published"
    assert "fewer than 5 seeds" in table


def test_the_command_writes_the_table_with_what_makes_it_again(tmp_path, monkeypatch, capsys):
    for seed in range(2):
        write_run(tmp_path / "runs", seed=seed)
    asked = []
    monkeypatch.setattr(
        "rlzoo_plus.commands.benchmark.run_suite",
        lambda *given: asked.append(given) or [tmp_path / "runs"],
    )
    words = ["--suite", "smoke", "--seeds", "2", "report.plot=false"]
    assert main([*words, "--out", str(tmp_path / "table.md")]) == 0
    assert asked == [("smoke", range(2), ["report.plot=false"])]
    text = (tmp_path / "table.md").read_text()
    assert text.startswith(f"# Benchmark\n\n`rlzoo-plus benchmark {' '.join(words)}`\n\n| ")
    assert text.endswith(capsys.readouterr().out.lstrip("\n"))
