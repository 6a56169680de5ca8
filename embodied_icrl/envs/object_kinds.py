"""The kinds of objects that lie in grid houses: what they are called and how they are drawn."""

from __future__ import annotations

from typing import NamedTuple

from embodied_icrl.envs.pictures import Colour


class Kind(NamedTuple):
    """A name for people, a shape of `pictures.SHAPES` and an RGB colour."""

    name: str
    shape: str
    colour: Colour


KINDS = (
    Kind("red disc", "circle", (214, 48, 49)),
    Kind("green square", "square", (39, 158, 84)),
    Kind("yellow triangle", "triangle", (240, 180, 0)),
    Kind("purple diamond", "diamond", (142, 68, 173)),
    Kind("orange cross", "cross", (232, 106, 23)),
    Kind("teal ring", "ring", (0, 150, 160)),
    Kind("pink bar", "bar", (233, 80, 160)),
    Kind("brown key", "key", (121, 77, 44)),
)
