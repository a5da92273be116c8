"""`rlzoo-plus plot`."""

import pytest

from rlzoo_plus.artifacts.records import append_records
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.commands.dispatch import run as run_verb
from rlzoo_plus.commands.plot import main
from rlzoo_plus.errors import ConfigError


@pytest.fixture
def make_run(here):
    """Return a function that writes a run below `outputs` of the current folder."""

    def make(seed=0, n_evaluations=3):
        run = RunDir(here / "outputs" / f"s{seed}")
        config = {"env": {"name": "cartpole"}, "algo": {"name": "ppo"}, "seed": seed}
        run.start(config, "train", {})
        run.write_status("running", num_timesteps=50)
        returns = [10.0 * i for i in range(n_evaluations)]
        append_records(
            run.evaluations_file,
            [{"step": 100 * i, "returns": [r], "mean_return": r} for i, r in enumerate(returns)],
        )
        losses = [{"step": 10 * i, "key": "train/loss", "value": 1.0 / (i + 1)} for i in range(5)]
        append_records(run.metrics_file, losses)
        return run

    return make


def is_png(path):
    return path.read_bytes().startswith(b"\x89PNG")


def test_the_curve_of_one_run_goes_into_the_run_and_its_place_is_printed(make_run, capsys):
    run = make_run()
    assert main([str(run.path)]) == 0
    picture = run.plots / "learning_curve.png"
    assert is_png(picture)
    assert capsys.readouterr().out.strip() == str(picture)


def test_the_curve_of_several_runs_goes_into_the_current_folder(make_run, tmp_path):
    make_run(0), make_run(1)
    assert main(["outputs", "--by", "seed"]) == 0
    assert is_png(tmp_path / "learning_curves.png")


@pytest.mark.parametrize("name", ["$\\undefined{$", "\x1b[2J", "_hidden", "x" * 5000])
def test_a_name_of_any_kind_can_be_drawn(make_run, name):
    run = make_run()
    config = {"env": {"name": name}, "algo": {"name": name}, "seed": 0}
    run.start(config, "train", {})
    assert main([str(run.path)]) == 0
    assert is_png(run.plots / "learning_curve.png")


def test_a_linked_folder_of_pictures_is_refused_unless_another_place_is_named(make_run, tmp_path):
    run = make_run()
    (tmp_path / "elsewhere").mkdir()
    run.plots.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="is a link"):
        main([str(run.path)])
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert main([str(run.path), "--out", "here.png"]) == 0


def test_out_decides_where_the_picture_goes(make_run, tmp_path):
    make_run()
    main(["outputs", "--out", "new/folder/a.png"])
    assert is_png(tmp_path / "new" / "folder" / "a.png")


def test_a_metric_is_drawn_without_replacing_the_learning_curve(make_run, tmp_path):
    run = make_run()
    main([str(run.path), "--metric", "train/loss"])
    assert [picture.name for picture in run.plots.iterdir()] == ["train_loss.png"]


def test_an_unknown_metric_is_answered_with_the_nearest(make_run):
    make_run()
    with pytest.raises(ConfigError, match="Did you mean 'train/loss'"):
        main(["outputs", "--metric", "train/los"])


def test_a_run_without_evaluations_says_how_far_it_is_and_what_else_can_be_drawn(make_run):
    run = make_run(n_evaluations=0)
    with pytest.raises(ConfigError, match=r"no evaluations yet \(running at step 50") as error:
        main([str(run.path)])
    assert "train/loss" in str(error.value)


def test_runs_without_evaluations_are_left_out_with_a_word(make_run, capsys):
    make_run(0), make_run(1, n_evaluations=0)
    assert main(["outputs"]) == 0
    assert "left out, no evaluations" in capsys.readouterr().err


def test_torn_lines_do_not_keep_a_run_from_being_drawn(make_run):
    run = make_run()
    run.status_file.write_text("{")
    with run.evaluations_file.open("a") as file:
        file.write('\n{"step": 40')
    assert main([str(run.path)]) == 0


def test_a_wrong_run_is_one_line_and_exit_code_2(make_run, tmp_path, capsys):
    run = make_run()
    (tmp_path / "empty").mkdir()
    run.plots.mkdir()
    for path, message in [
        ("nowhere", "nowhere: no such directory"),
        ("empty", "empty holds no run"),
        (str(run.plots), f"It is part of a run: give {run.path}"),
    ]:
        assert run_verb("plot", [path]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


def test_help_says_what_it_does_and_gives_an_example(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    assert "Example: rlzoo-plus plot" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "start"), [("a.svg", b"<?xml"), ("a.pdf", b"%PDF")])
def test_the_suffix_chooses_the_format_and_the_same_runs_give_the_same_file(
    make_run, tmp_path, name, start
):
    make_run(0), make_run(1)
    contents = []
    for _ in range(2):
        assert main(["outputs", "--out", name]) == 0
        contents.append((tmp_path / name).read_bytes())
    assert contents[0].startswith(start)
    assert contents[0] == contents[1]


def test_scores_and_tables_need_finished_runs(make_run):
    make_run(0)
    for options in (["--kind", "scores"], ["--table", "md"]):
        with pytest.raises(ConfigError, match="no finished run"):
            main(["outputs", *options])


def test_charts_and_tables_of_finished_runs_are_written(make_run, tmp_path, capsys):
    for seed in range(2):
        run = make_run(seed)
        run.write_result({"final": {"mean_return": 20.0}, "best": {"mean_return": 30.0}})
        run.write_status("finished")
    assert main(["outputs", "--kind", "scores", "--out", "s.png"]) == 0
    assert is_png(tmp_path / "s.png")
    assert main([str(run.path), "--kind", "scores"]) == 0
    assert is_png(run.plots / "scores.png")
    assert main(["outputs", "--table", "csv"]) == 0
    assert "cartpole,ppo,2,True,20.0,,,20.0,20.0" in capsys.readouterr().out
    assert main(["outputs", "--table", "tex", "--out", "t.tex"]) == 0
    with pytest.raises(ConfigError, match=r"ends in \.md"):
        main(["outputs", "--table", "md", "--out", "curves.txt"])
    assert "tabular" in (tmp_path / "t.tex").read_text()


@pytest.mark.parametrize("kind", ["curves", "scores"])
def test_one_command_draws_a_plot_and_prints_its_table(make_run, tmp_path, capsys, kind):
    for seed in range(2):
        run = make_run(seed)
        run.write_result({"final": {"mean_return": 20.0}, "best": {"mean_return": 30.0}})
        run.write_status("finished")
    arguments = ["outputs", "--kind", kind, "--x", "steps", "--table", "csv"]
    assert main([*arguments, "--out", "both.png"]) == 0
    assert is_png(tmp_path / "both.png")
    printed = capsys.readouterr()
    assert main(["outputs", "--table", "csv"]) == 0
    assert printed.out == capsys.readouterr().out
    assert "both.png" in printed.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "at least one run"),
        (["outputs", "--kind", "scores", "--x", "hours"], "--x is for learning curves"),
        (["outputs", "--threshold", "3"], "--threshold is for --kind threshold"),
        (["outputs", "--width", "neurips"], "--width is for --style paper"),
        (["outputs", "--x", "episodes"], "does not say where steps lie in episodes"),
    ],
)
def test_options_that_do_not_go_together_are_one_line(make_run, capsys, arguments, message):
    make_run()
    assert run_verb("plot", arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
