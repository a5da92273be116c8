"""How long the dashboard's pages take for a thousand runs of fifty metrics.

    .venv/bin/python -m benchmarks.dashboard_page --runs 1000

The runs are written, not trained. Headless Chromium opens the pages of a server that was just
started: once with an empty index of runs, then with the index of the first time. Measured are the
time until the first page shows something, until it has read all runs, until the page of runs has
drawn the curves of the ten best groups, until it has drawn another metric, which is read from the
logs, and until the table shows what a filter left. Needs the extra `dashboard`, Chromium with
chromedriver, and selenium.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.processes import ONE_THREAD, ROOT

_EVALUATIONS, _SEEDS, _METRICS, _LOGGED = 20, 10, 50, 100
_LONGEST_S = 60.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3, help="page loads with the known index")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
        runs = Path(folder)
        write_runs(runs, args.runs)
        os.environ |= {"XDG_CACHE_HOME": cache, "PYTHONPATH": str(ROOT), **ONE_THREAD}
        with _chromium() as browser:
            # The browser's own start is none of the page's.
            browser.get("about:blank")
            for number in range(1 + args.rounds):
                what = "new index" if number == 0 else "known index"
                _measure(browser, runs, args.runs, what)


def write_runs(folder: Path, count: int) -> None:
    """Write finished runs with a real configuration, that differ in `gamma` and in their seed."""
    from rlzoo_plus.artifacts.records import append_records
    from rlzoo_plus.artifacts.run_dir import RunDir
    from rlzoo_plus.runs.load import load

    config = load(["algo=ppo", "env=cartpole_bullet"]).model_dump(mode="json")
    for number in range(count):
        run = RunDir(folder / "sweeps" / f"s{number % 10}" / f"run-{number:05d}")
        run.path.mkdir(parents=True)
        config["seed"] = number % _SEEDS
        config["algo"]["hyperparams"]["gamma"] = 0.9 + 0.09 * (number // _SEEDS) / count
        run.start(config, "rlzoo-plus train", {"python": "3.11"})
        records = [
            {"step": 1000 * i, "returns": [float(i + number % 7)] * 5, "mean_return": float(i)}
            for i in range(1, _EVALUATIONS + 1)
        ]
        append_records(run.evaluations_file, records)
        append_records(
            run.metrics_file,
            (
                {"ts": 1e9 + step, "step": 200 * step, "key": f"train/m{m}", "value": m + 1 / step}
                for step in range(1, _LOGGED + 1)
                for m in range(_METRICS)
            ),
        )
        run.write_result({"state": "finished", "best": records[-1], "final": records[-1]})
        run.write_status("finished", num_timesteps=20_000, n_timesteps=20_000)


def _measure(browser: Any, folder: Path, count: int, what: str) -> None:
    with _served(folder) as (port, process):
        address = f"http://127.0.0.1:{port}/"
        first_s = _timed(lambda: browser.get(address), lambda: _count(browser, "tbody tr") > 0)
        all_s = first_s + _timed(
            lambda: None, lambda: f"All {count} runs" in _text(browser) and _is_still(browser)
        )
        curves_s = _timed(lambda: _go(browser, "#/runs"), lambda: _has_curves(browser))
        metric = "#/runs?metrics=train/m7"
        metric_s = _timed(lambda: _go(browser, metric), lambda: _has_curves(browser))
        wanted = f"{-(-count // 10)} of {count}"
        filter_s = _timed(lambda: _type(browser, "sweeps/s3"), lambda: wanted in _text(browser))
        print(
            f"{what:<12} first page {first_s:.2f} s, all runs {all_s:.2f} s, "
            f"curves {curves_s:.2f} s, logged metric {metric_s:.2f} s, filter {filter_s:.2f} s "
            f"({_cpu_s(process.pid):.2f} s of the server)",
            flush=True,
        )


@contextmanager
def _served(folder: Path) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    command = [sys.executable, "-m", "rlzoo_plus", "dashboard", str(folder), "--port", str(port)]
    with subprocess.Popen(command, cwd=ROOT, **silent) as process:
        try:
            _timed(lambda: None, lambda: _listens(port))
            yield port, process
        finally:
            process.kill()


@contextmanager
def _chromium() -> Iterator[Any]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--window-size=1500,1200"):
        options.add_argument(flag)
    # Its own driver, so that selenium asks no network for one.
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    with webdriver.Chrome(options=options, service=service) as driver:
        yield driver


def _timed(begin: Callable[[], object], is_done: Callable[[], bool]) -> float:
    began = time.perf_counter()
    begin()
    while not is_done():
        if time.perf_counter() - began > _LONGEST_S:
            raise TimeoutError("the page did not show it")
        time.sleep(0.02)
    return time.perf_counter() - began


def _listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def _text(browser: Any) -> str:
    return str(browser.execute_script("return document.body.innerText"))


def _count(browser: Any, selector: str) -> int:
    return int(browser.execute_script(f"return document.querySelectorAll('{selector}').length"))


def _is_still(browser: Any) -> bool:
    return "to be read" not in _text(browser)


def _has_curves(browser: Any) -> bool:
    return _count(browser, ".chart .scatterlayer .js-line") > 0


def _go(browser: Any, place: str) -> None:
    browser.execute_script(
        "document.querySelectorAll('.chart').forEach((chart) => chart.remove());"
        f"location.hash = '{place}'"
    )


def _type(browser: Any, text: str) -> None:
    from selenium.webdriver.common.by import By

    browser.find_element(By.ID, "search").send_keys(text)


def _cpu_s(pid: int) -> float:
    """Return the processor time that a process has used [s]."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
