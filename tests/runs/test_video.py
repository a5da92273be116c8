"""Videos and captions."""

import av
import numpy as np
import pytest
from PIL import Image

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.training.media import as_frame, caption, write_video


def video(n_frames, height=48, width=64):
    """Return frames that get brighter, so that no two are the same."""
    levels = np.linspace(20, 220, n_frames).astype(np.uint8)
    return [np.full((height, width, 3), level, dtype=np.uint8) for level in levels]


def decode(path):
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
        return stream.codec_context, stream.average_rate, frames


def test_an_mp4_holds_every_frame_at_its_size_rate_and_brightness(tmp_path):
    frames = video(12)
    assert write_video(iter(frames), tmp_path / "new" / "a.mp4", fps=25) == 12
    codec, rate, decoded = decode(tmp_path / "new" / "a.mp4")
    assert (codec.name, codec.pix_fmt, float(rate)) == ("h264", "yuv420p", 25.0)
    assert [frame.shape for frame in decoded] == [(48, 64, 3)] * 12
    for frame, original in zip(decoded, frames, strict=True):
        assert abs(float(frame.mean()) - float(original.mean())) < 4


def test_odd_sizes_are_made_even(tmp_path):
    write_video(video(3, height=47, width=63), tmp_path / "a.mp4", fps=30)
    assert decode(tmp_path / "a.mp4")[2][0].shape == (48, 64, 3)


def test_a_rate_with_a_fraction_is_kept(tmp_path):
    write_video(video(3), tmp_path / "a.mp4", fps=29.97)
    assert float(decode(tmp_path / "a.mp4")[1]) == pytest.approx(29.97, abs=0.01)


def test_a_gif_holds_every_frame_and_repeats(tmp_path):
    assert write_video(video(5), tmp_path / "a.GIF", fps=10) == 5
    with Image.open(tmp_path / "a.GIF") as picture:
        assert (picture.n_frames, picture.size) == (5, (64, 48))
        assert (picture.info["duration"], picture.info["loop"]) == (100, 0)


def test_a_fast_gif_leaves_frames_out_and_keeps_its_pace(tmp_path):
    assert write_video(video(10), tmp_path / "a.gif", fps=100) == 5
    with Image.open(tmp_path / "a.gif") as picture:
        assert (picture.n_frames, picture.info["duration"]) == (5, 20)


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_a_video_without_frames_is_an_error_and_leaves_nothing(tmp_path, suffix):
    with pytest.raises(ConfigError, match="no frame"):
        write_video([], tmp_path / f"a{suffix}", fps=30)
    assert list(tmp_path.iterdir()) == []


def test_a_video_that_breaks_off_keeps_the_one_before(tmp_path):
    path = tmp_path / "a.mp4"
    write_video(video(3), path, fps=30)
    before = path.read_bytes()

    def breaks_off():
        yield video(1)[0]
        raise RuntimeError("the simulation went away")

    with pytest.raises(RuntimeError, match="went away"):
        write_video(breaks_off(), path, fps=30)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "odd_one",
    [np.zeros((48, 64, 4), np.uint8), np.zeros((48, 64, 3)), np.zeros((50, 64, 3), np.uint8)],
    ids=["four channels", "floats", "another size"],
)
def test_a_frame_of_another_kind_is_named(tmp_path, odd_one):
    with pytest.raises(ValueError, match="frame 2 has shape"):
        write_video([*video(2), odd_one], tmp_path / "a.mp4", fps=30)


def test_an_unknown_suffix_is_answered_with_the_known_ones(tmp_path):
    with pytest.raises(ConfigError, match=r"\.mp4 or \.gif, not in '\.avi'"):
        write_video(video(1), tmp_path / "a.avi", fps=30)


@pytest.mark.parametrize("fps", [0, -1, float("nan"), float("inf")])
def test_a_rate_that_is_not_above_zero_is_refused(tmp_path, fps):
    with pytest.raises(ConfigError, match="fps="):
        write_video(video(1), tmp_path / "a.mp4", fps=fps)


def test_a_caption_darkens_a_strip_writes_light_text_on_it_and_leaves_the_rest():
    frame = np.full((240, 320, 3), 120, dtype=np.uint8)
    captioned = caption(frame, "ppo on cartpole, return 412.3")
    assert (captioned.shape, captioned.dtype) == (frame.shape, np.uint8)
    assert (frame == 120).all()
    assert (captioned[:200] == 120).all()
    assert captioned[-1, -1].max() < 60
    assert captioned[220:].max() > 240


@pytest.mark.parametrize("size", [(240, 320), (64, 64), (9, 7)])
def test_a_caption_of_any_length_fits_on_a_frame_of_any_size(size):
    frame = np.full((*size, 3), 120, dtype=np.uint8)
    for text in ("", "short", "long " * 100, "two\nlines"):
        assert caption(frame, text).shape == frame.shape


def _picture():
    picture = np.zeros((20, 30, 3), np.uint8)
    picture[..., 0] = np.arange(30) * 8
    picture[5:10, 5:10] = (40, 220, 60)
    return picture


PICTURE = _picture()
GREY = PICTURE.mean(-1).astype(np.uint8)
THREE = np.repeat(GREY[..., None], 3, axis=-1)


@pytest.mark.parametrize(
    ("image", "frame"),
    [
        (PICTURE / 255, PICTURE),
        ((PICTURE / 255).astype(np.float32), PICTURE),
        (PICTURE.astype(float), PICTURE),
        (PICTURE.astype(np.int64) + 300, np.full_like(PICTURE, 255)),
        (GREY, THREE),
        (GREY[..., None], THREE),
        (GREY > 100, (THREE > 100) * np.uint8(255)),
        (np.dstack([PICTURE, GREY]), PICTURE),
        ([GREY, PICTURE], PICTURE),
        ([PICTURE, GREY], THREE),
        (PICTURE.tolist(), PICTURE),
        (GREY.tolist(), THREE),
    ],
    ids=["float64", "float32", "float to 255", "int64", "grey", "grey of one channel", "bool",
         "alpha", "list", "list of grey ones", "rows", "rows of grey"],
)  # fmt: skip
def test_an_image_of_any_kind_becomes_a_frame(image, frame):
    found = as_frame(image)
    assert found.dtype == np.uint8
    assert np.abs(found.astype(int) - frame).max() <= 1


@pytest.mark.parametrize("image", [None, [], np.zeros(5), np.zeros((4, 5, 2)), "text", [None]])
def test_what_is_no_image_is_refused_with_its_shape(image):
    with pytest.raises(ConfigError, match=r"and no image\. Let it return uint8 of shape"):
        as_frame(image)
