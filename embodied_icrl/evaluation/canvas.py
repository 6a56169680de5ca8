"""Drawing for videos: text, scaled pictures and small bar charts on an RGB canvas."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

Colour = tuple[int, int, int]

BACKGROUND: Colour = (250, 250, 248)
INK: Colour = (34, 37, 41)
FAINT: Colour = (128, 133, 140)
RULE: Colour = (214, 216, 219)
BLUE: Colour = (31, 95, 191)
ORANGE: Colour = (217, 115, 26)
GREEN: Colour = (45, 138, 78)
RED: Colour = (190, 52, 44)
SAND: Colour = (199, 164, 68)


@cache
def font(size: int, bold: bool = False) -> Any:
    """DejaVu Sans, which ships with matplotlib: the same letters on every machine."""
    import matplotlib

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name
    return ImageFont.truetype(str(path), size)


class Canvas:
    """An RGB picture to draw on; coordinates are pixels, x right and y down."""

    def __init__(self, width: int, height: int) -> None:
        self.image = Image.new("RGB", (width, height), BACKGROUND)
        self.draw = ImageDraw.Draw(self.image)

    def array(self) -> np.ndarray:
        """The picture as a new array, uint8 ``[height, width, 3]``."""
        return np.array(self.image)

    def text(
        self,
        position: tuple[float, float],
        text: str,
        *,
        size: int = 15,
        colour: Colour = INK,
        bold: bool = False,
        anchor: str = "la",
        width: float | None = None,
    ) -> float:
        """Writes one line, cut to ``width`` pixels with an ellipsis; returns its width."""
        face = font(size, bold)
        if width is not None and face.getlength(text) > width:
            while text and face.getlength(text + "…") > width:
                text = text[:-1]
            text += "…"
        self.draw.text(position, text, font=face, fill=colour, anchor=anchor)
        return float(face.getlength(text))

    def picture(self, box: tuple[int, int, int, int], image: np.ndarray) -> tuple[int, int, float]:
        """Fits ``image: uint8 [h, w, 3]`` into ``box = (x, y, width, height)``, centred.

        Small pictures are enlarged with hard pixel edges, large ones are averaged down. Returns
        where its upper left corner came to lie and the scale, to draw over it.
        """
        left, top, width, height = box
        rows, columns = image.shape[:2]
        scale = min(width / columns, height / rows)
        size = (max(1, round(columns * scale)), max(1, round(rows * scale)))
        kind = Image.Resampling.NEAREST if scale >= 1 else Image.Resampling.BOX
        x, y = left + (width - size[0]) // 2, top + (height - size[1]) // 2
        self.image.paste(Image.fromarray(np.ascontiguousarray(image)).resize(size, kind), (x, y))
        self.draw.rectangle((x - 1, y - 1, x + size[0], y + size[1]), outline=RULE)
        return x, y, scale

    def path(self, points: Sequence[tuple[float, float]], colour: Colour, width: int) -> None:
        """A line through ``points``."""
        if len(points) > 1:
            self.draw.line([tuple(p) for p in points], fill=colour, width=width, joint="curve")

    def disc(
        self,
        centre: tuple[float, float],
        radius: float,
        fill: Colour | None,
        outline: Colour | None = None,
        width: int = 2,
    ) -> None:
        """A filled circle, a ring, or both."""
        x, y = centre
        box = (x - radius, y - radius, x + radius, y + radius)
        self.draw.ellipse(box, fill=fill, outline=outline, width=width)

    def bars(
        self,
        box: tuple[int, int, int, int],
        title: str,
        values: Sequence[float | None],
        colours: Sequence[Colour],
        *,
        top: float,
        marks: Sequence[float | None] = (),
        labels: Sequence[str] | None = None,
        form: str = "{:g}",
    ) -> None:
        """A bar chart in ``box = (x, y, width, height)``: slots from left to right.

        Args:
            values: one per slot; None leaves the slot empty.
            colours: of the bars.
            top: the value that reaches the upper edge. Negative values hang below the line.
            marks: a tick across the slot at this value (the oracle's), where not None.
            labels: under the slots; slot numbers from 1 if not given, thinned to fit.
            form: how a bar's value is written above it.
        """
        left, upper, width, height = box
        self.text((left, upper), title, size=13, colour=FAINT, width=width)
        low = min([0.0, *(v for v in (*values, *marks) if v is not None)])
        area_top, area_bottom = upper + 36, upper + height - 18
        unit = (area_bottom - area_top) / max(top - low, 1e-9)
        zero = area_bottom + low * unit
        step = width / max(len(values), 1)
        every = max(1, int(np.ceil(17 / step)))
        for slot, value in enumerate(values):
            middle = left + step * (slot + 0.5)
            label = labels[slot] if labels else str(slot + 1)
            mark = marks[slot] if slot < len(marks) else None
            mark_y = zero if mark is None else zero - min(mark, top) * unit
            if slot % every == 0:
                self.text((middle, area_bottom + 4), label, size=11, colour=FAINT, anchor="ma")
            if value is not None:
                y = zero - min(value, top) * unit
                half = max(1.0, min(step * 0.36, 26.0))
                edges = (middle - half, min(y, zero), middle + half, max(y, zero))
                self.draw.rectangle(edges, fill=colours[slot])
                if step >= 17:
                    upper_end = min(y, zero)
                    # A mark just above the bar would cross the number.
                    place = (
                        middle,
                        min(upper_end, mark_y if upper_end - mark_y < 18 else zero) - 3,
                    )
                    size = 11 if step >= 26 else 9
                    self.text(place, form.format(value), size=size, anchor="md")
            if mark is not None:
                reach = min(step * 0.45, 30.0)
                ends = (middle - reach, mark_y, middle + reach, mark_y)
                self.draw.line(ends, fill=INK, width=2)
        self.draw.line((left, zero, left + width, zero), fill=FAINT, width=1)
