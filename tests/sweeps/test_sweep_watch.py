"""`rlzoo-plus sweep status --watch`: shows the progress, and ends with the sweep."""

from types import SimpleNamespace

import pytest
from support.processes import PLUS, wait_for
from support.terminals import CTRL_C, terminals_in
from support.training import tiny_config

from rlzoo_plus.commands import dispatch, sweep
from rlzoo_plus.sweeps import ledger
from rlzoo_plus.sweeps.ledger import Ledger
from rlzoo_plus.sweeps.presence import Presence
from rlzoo_plus.sweeps.sweep_job import make_job


@pytest.fixture
def jobs(tmp_path):
    configs = [tiny_config("ppo", "tests/TinyReach-v0", f"seed={seed}") for seed in range(4)]
    jobs = [make_job(c.model_copy(update={"sweep": str(tmp_path / "s")})) for c in configs]
    Ledger(tmp_path / "s").add(jobs)
    return jobs


@pytest.fixture
def at_work(tmp_path, jobs, monkeypatch):
    """Let something happen each time that the watching sleeps: jobs end, then their controller."""

    def happens():
        with Presence(tmp_path / "s"):
            yield
            for job in jobs[:-1]:
                job.run_dir.write_status("finished", n_timesteps=job.config.n_timesteps)
                yield
            Ledger(tmp_path / "s").write(ledger.FAILED, jobs[-1], reason="the gearbox broke")
            yield

    story = happens()
    next(story)
    monkeypatch.setattr(sweep, "time", SimpleNamespace(sleep=lambda _: next(story, None)))


def test_watching_shows_the_progress_and_ends_with_the_sweep(in_process, at_work, capsys):
    assert dispatch.run("sweep", ["status", "./s", "--watch"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("4 jobs: ")] == [
        "4 jobs: 4 waiting",
        "4 jobs: 3 waiting, 1 done",
        "4 jobs: 2 waiting, 2 done",
        "4 jobs: 1 waiting, 3 done",
        "4 jobs: 3 done, 1 failed",
        # Once more, with the whole state, when it has ended.
        "4 jobs: 3 done, 1 failed",
    ]
    assert any(line.endswith("the gearbox broke") for line in lines)
    assert lines[-1] == "no controller at work"


def test_watching_a_sweep_on_which_nobody_works_ends_at_once(in_process, jobs, capsys):
    assert dispatch.run("sweep", ["status", "./s", "--watch"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("4 jobs")] == ["4 jobs: 4 waiting"]


@pytest.mark.training
def test_ctrl_c_ends_the_watching_and_gives_the_cursor_back(tmp_path, jobs):
    with Presence(tmp_path / "s") as presence, terminals_in(tmp_path) as open_terminal:
        terminal = open_terminal(*PLUS, "sweep", "status", "./s", "--watch")
        wait_for(lambda: "4 waiting" in terminal.text, terminal.process)
        terminal.press(CTRL_C)
        assert terminal.wait() == 130
        assert "Traceback" not in terminal.text
        hidden, shown = (terminal.text.rfind(f"\x1b[?25{end}") for end in "lh")
        assert -1 < hidden < shown
        # Looking on is not working: the controller goes on.
        assert not presence.is_asked_to_stop()
