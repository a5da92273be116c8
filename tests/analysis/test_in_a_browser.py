"""The page in headless Chromium: a run that trains, a video; no request leaves this machine."""

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import time
from urllib.parse import urlsplit

import pytest
from support.training import TINY

from rlzoo_plus.analysis.dashboard.launch import command_of

pytestmark = [pytest.mark.slow, pytest.mark.training]
# The row of the newest run, and the box that selects it, in pixels from the corner of the table.
BOX = (20, 52)


@pytest.fixture
def browser():
    webdriver = pytest.importorskip("selenium.webdriver")
    if shutil.which("chromedriver") is None:
        pytest.skip("needs Chromium and chromedriver")
    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--window-size=1500,2400"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
    # Its own driver, so that selenium asks no network for one.
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    with webdriver.Chrome(options=options, service=service) as driver:
        yield driver


@contextlib.contextmanager
def process(*command):
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        try:
            yield running
        finally:
            running.kill()


def _wait(condition, seconds=60):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with contextlib.suppress(Exception):
            if found := condition():
                return found
        time.sleep(0.5)
    pytest.fail("it did not come")


def _hosts(browser):
    events = (json.loads(row["message"])["message"] for row in browser.get_log("performance"))
    urls = [
        e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"
    ]
    urls += [e["params"]["url"] for e in events if e["method"] == "Network.webSocketCreated"]
    return {urlsplit(url).hostname for url in urls if urlsplit(url).scheme not in ("data", "blob")}


def test_a_run_is_chosen_its_curve_moves_its_video_plays_and_a_filter_hides_others(
    browser, tmp_path
):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    train = [sys.executable, "-m", "rlzoo_plus", "train", "algo=ppo", "env=cartpole", *TINY[1:]]
    train += ["eval.every_steps=2048", "log.tensorboard=true", "report.plot=false"]
    finished = [*train, "n_timesteps=2048", "report.video=true", "report.video_seconds=1"]
    subprocess.run([*finished, f"run_dir={tmp_path}/finished"], check=True, capture_output=True)
    long = [*train, "n_timesteps=100000000", f"run_dir={tmp_path}/trains"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with process(*long), process(*command_of(tmp_path, port)):
        _wait(lambda: (tmp_path / "trains" / "evaluations.jsonl").stat().st_size)
        _wait(lambda: browser.get(f"http://127.0.0.1:{port}") or True)
        table = _wait(lambda: browser.find_element(By.CSS_SELECTOR, "[data-testid=stDataFrame]"))
        text = _wait(lambda: browser.find_element(By.CSS_SELECTOR, "[data-testid=stProgress]").text)
        assert "of 100,000,000 steps" in text
        chart = "[data-testid=stVegaLiteChart]"
        before = _wait(lambda: browser.find_element(By.CSS_SELECTOR, chart).screenshot_as_png)
        _wait(
            lambda: browser.find_element(By.CSS_SELECTOR, "[data-testid=stProgress]").text != text
        )
        _wait(lambda: browser.find_element(By.CSS_SELECTOR, chart).screenshot_as_png != before)
        # The finished run is the second row.
        left, top = -table.size["width"] // 2 + BOX[0], -table.size["height"] // 2 + BOX[1] + 35
        ActionChains(browser).move_to_element_with_offset(table, left, top).click().perform()
        video = _wait(lambda: browser.find_element(By.TAG_NAME, "video"))
        _wait(lambda: browser.execute_script("return arguments[0].currentTime", video) > 0)
        box = browser.find_element(By.CSS_SELECTOR, "[data-testid=stTextInput] input")
        box.send_keys("finished", Keys.ENTER)
        _wait(lambda: "1 of 2 in" in browser.find_element(By.TAG_NAME, "body").text)
        assert _hosts(browser) == {"127.0.0.1"}
