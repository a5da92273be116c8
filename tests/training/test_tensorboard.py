"""What TensorBoard shows of a run besides its curves: configuration, hyperparameters, video."""

import io

import numpy as np
import pytest
from support.training import tiny_config, train_run

from rlzoo_plus.training.callbacks.outputs import write_outcome
from rlzoo_plus.training.media import write_video

pytestmark = pytest.mark.training


def _values(run_dir):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    return [
        value
        for file in sorted(run_dir.tensorboard.glob("events.out.*"))
        for event in EventFileLoader(str(file)).Load()
        for value in event.summary.value
    ]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    config = tiny_config("ppo", "tests/TinyReach-v0", "log.tensorboard=true")
    return config, *train_run(tmp_path_factory.mktemp("run"), config)


def test_the_configuration_is_there_as_text(trained):
    _, run_dir, _ = trained
    (text,) = [v for v in _values(run_dir) if v.tag == "config/text_summary"]
    shown = text.tensor.string_val[0].decode()
    assert "n_timesteps: 64" in shown
    assert shown.startswith("```yaml")


def test_hyperparameters_are_there_with_the_final_metrics(trained):
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    _, run_dir, result = trained
    values = _values(run_dir)
    scalars = {v.tag: v.tensor.float_val[0] for v in values if v.tensor.float_val}
    assert scalars["result/best_mean_return"] == pytest.approx(result.best["mean_return"])
    assert scalars["result/final_mean_return"] == pytest.approx(result.final["mean_return"])
    (start,) = [v for v in values if v.tag.endswith("session_start_info")]
    plugin = HParamsPluginData.FromString(start.metadata.plugin_data.content)
    hparams = plugin.session_start_info.hparams
    assert hparams["algo"].string_value == "ppo"
    assert hparams["algo.n_steps"].number_value == 32


def test_a_video_is_shown_as_moving_picture(trained):
    from PIL import Image

    config, run_dir, result = trained
    video = run_dir.videos / "best.mp4"
    frames = (np.full((64, 96, 3), 12 * k, np.uint8) for k in range(20))
    write_video(frames, video, 20.0)
    write_outcome(run_dir, config, result, video)
    (shown,) = [v for v in _values(run_dir) if v.tag == "video/best"]
    # The loader makes tensors of pictures: width, height, and the file.
    picture = Image.open(io.BytesIO(shown.tensor.string_val[2]))
    assert (picture.format, picture.n_frames, picture.size) == ("GIF", 10, (96, 64))


def test_what_cannot_be_written_never_fails_a_run(trained, tmp_path, caplog):
    config, run_dir, result = trained
    broken = tmp_path / "best.mp4"
    broken.write_text("no video")
    write_outcome(run_dir, config, result, broken)
    assert "tensorboard/ lacks the outcome" in caplog.text
