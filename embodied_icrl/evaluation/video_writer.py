"""H.264 video files from RGB frames."""

from __future__ import annotations

import os
import tempfile
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from embodied_icrl.common.errors import UserError, require


class VideoWriter:
    """Writes an MP4 (H.264, yuv420p, index first) that browsers play and that can be streamed.

    A context manager. Frames go to a temporary file beside ``path``, which takes its name only
    when the block ends without an exception: an interrupted video never replaces a whole one.

    Args:
        path: where the video appears; its folder is created.
        fps: frames per second.
        size: ``(width, height)`` of the frames in pixels. H.264 with halved colour resolution
            needs even numbers: an odd side gets one more black row or column.

    Raises:
        UserError: the encoder is not available, or the file can't be written.
    """

    def __init__(self, path: str | Path, fps: float, size: tuple[int, int]) -> None:
        if fps <= 0 or min(size) < 1:
            raise UserError(f"a video needs a positive frame rate and size, got {fps} and {size}")
        self.path = Path(path)
        self.fps = fps
        self.width, self.height = int(size[0]), int(size[1])
        self.frames = 0
        self._even = (self.width + self.width % 2, self.height + self.height % 2)
        self._container: Any = None
        self._temporary: str | None = None

    def __enter__(self) -> Self:
        self._av = require("av", "pip install av")
        if "libx264" not in self._av.codecs_available:
            raise UserError("this build of PyAV has no H.264 encoder (libx264): pip install av")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, self._temporary = tempfile.mkstemp(
                dir=self.path.parent, prefix=f".{self.path.name}.", suffix=".tmp"
            )
            os.close(handle)
        except OSError as error:
            raise UserError(f"can't write the video {self.path}: {error.strerror}") from error
        self._container = self._av.open(
            self._temporary, "w", format="mp4", options={"movflags": "+faststart"}
        )
        rate = Fraction(self.fps).limit_denominator(1000)
        self._stream = self._container.add_stream("libx264", rate=rate)
        self._stream.width, self._stream.height = self._even
        self._stream.pix_fmt = "yuv420p"
        self._stream.options = {"preset": "veryfast", "crf": "23"}
        return self

    def write(self, frame: np.ndarray) -> None:
        """Appends one frame, ``uint8 [height, width, 3]`` RGB."""
        if self._container is None:
            raise RuntimeError("VideoWriter is a context manager: use it in a with block")
        if frame.shape != (self.height, self.width, 3) or frame.dtype != np.uint8:
            raise ValueError(
                f"expected a uint8 frame {(self.height, self.width, 3)}, "
                f"got {frame.dtype} {frame.shape}"
            )
        if self._even != (self.width, self.height):
            padded = np.zeros((self._even[1], self._even[0], 3), np.uint8)
            padded[: self.height, : self.width] = frame
            frame = padded
        picture = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")
        for packet in self._stream.encode(picture):
            self._container.mux(packet)
        self.frames += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        temporary = str(self._temporary)
        try:
            if kind is None and self.frames:
                for packet in self._stream.encode():
                    self._container.mux(packet)
            self._container.close()
            if kind is None:
                if not self.frames:
                    raise UserError(f"no frame was written to the video {self.path}")
                _publish(temporary, self.path)
        finally:
            self._container = None
            if os.path.exists(temporary):
                os.unlink(temporary)


def _publish(temporary: str, path: Path) -> None:
    """Moves the finished file to its name, with the usual permissions of a new file."""
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(temporary, 0o666 & ~mask)
    with open(temporary, "rb") as file:
        os.fsync(file.fileno())
    os.replace(temporary, path)
