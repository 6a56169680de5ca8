from __future__ import annotations

import importlib
import os

import numpy as np
import pytest

from embodied_icrl.common.errors import MissingDependencyError, UserError
from embodied_icrl.evaluation.video_writer import VideoWriter


def frames(count: int, width: int, height: int) -> list[np.ndarray]:
    """Smooth pictures that change over time; H.264 reproduces them closely."""
    x = np.linspace(0, 1, width)[None, :, None] * np.ones((height, 1, 3))
    return [np.uint8(200 * x * (i + 1) / count + 20) for i in range(count)]


def decode(path):
    av = pytest.importorskip("av")
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        codec, pix_fmt = stream.codec_context.name, stream.codec_context.pix_fmt
        rate = stream.average_rate
        pictures = [f.to_ndarray(format="rgb24") for f in container.decode(video=0)]
    return codec, pix_fmt, rate, pictures


def test_a_browser_can_play_it(tmp_path):
    path = tmp_path / "new" / "film.mp4"
    written = frames(7, 64, 48)
    with VideoWriter(path, fps=12.5, size=(64, 48)) as writer:
        for frame in written:
            writer.write(frame)
        assert not path.exists()
    codec, pix_fmt, rate, pictures = decode(path)
    assert (codec, pix_fmt, float(rate)) == ("h264", "yuv420p", 12.5)
    assert len(pictures) == 7
    for got, wanted in zip(pictures, written, strict=True):
        assert got.shape == (48, 64, 3)
        assert np.abs(got.astype(int) - wanted.astype(int)).mean() < 4
    data = path.read_bytes()
    assert data.index(b"moov") < data.index(b"mdat"), "the index must come first"
    assert [p.name for p in path.parent.iterdir()] == ["film.mp4"]


def test_odd_sizes_are_padded(tmp_path):
    with VideoWriter(tmp_path / "odd.mp4", fps=5, size=(33, 21)) as writer:
        writer.write(np.full((21, 33, 3), 200, np.uint8))
    picture = decode(tmp_path / "odd.mp4")[3][0]
    assert picture.shape == (22, 34, 3)
    assert abs(int(picture[10, 10, 0]) - 200) < 5


def test_a_failure_leaves_the_old_video_and_no_rubbish(tmp_path):
    path = tmp_path / "film.mp4"
    path.write_bytes(b"old")

    def interrupted():
        with VideoWriter(path, 5, (32, 32)) as writer:
            writer.write(np.zeros((32, 32, 3), np.uint8))
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        interrupted()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["film.mp4"]


def test_wrong_frames_are_refused(tmp_path):
    writer = VideoWriter(tmp_path / "a.mp4", 5, (32, 16))
    with pytest.raises(RuntimeError, match="with block"):
        writer.write(np.zeros((16, 32, 3), np.uint8))
    with writer:
        writer.write(np.zeros((16, 32, 3), np.uint8))
        with pytest.raises(ValueError, match="expected a uint8 frame"):
            writer.write(np.zeros((32, 16, 3), np.uint8))
        with pytest.raises(ValueError, match="float64"):
            writer.write(np.zeros((16, 32, 3)))


def test_a_video_without_frames_is_an_error(tmp_path):
    with (
        pytest.raises(UserError, match="no frame was written"),
        VideoWriter(tmp_path / "a.mp4", 5, (32, 16)),
    ):
        pass
    assert os.listdir(tmp_path) == []


def test_unwritable_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UserError, match="can't write the video"),
        VideoWriter(tmp_path / "file" / "a.mp4", 5, (32, 16)),
    ):
        pass


@pytest.mark.parametrize(("fps", "size"), [(0, (32, 32)), (5, (0, 32))])
def test_impossible_videos(tmp_path, fps, size):
    with pytest.raises(UserError, match="positive"):
        VideoWriter(tmp_path / "a.mp4", fps, size)


def test_missing_encoder_says_what_to_install(tmp_path, monkeypatch):
    av = importlib.import_module("av")
    monkeypatch.setattr(av, "codecs_available", {"mpeg4"})
    with pytest.raises(UserError, match="libx264"), VideoWriter(tmp_path / "a.mp4", 5, (8, 8)):
        pass


def test_missing_package_says_what_to_install(tmp_path, monkeypatch):
    real = importlib.import_module

    def fake(name: str, package: str | None = None):
        if name == "av":
            raise ModuleNotFoundError("No module named 'av'", name="av")
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", fake)
    with (
        pytest.raises(MissingDependencyError, match="pip install av"),
        VideoWriter(tmp_path / "a.mp4", 5, (8, 8)),
    ):
        pass
    assert os.listdir(tmp_path) == []
