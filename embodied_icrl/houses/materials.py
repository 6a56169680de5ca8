"""Named colours for floors, walls, furniture and objects, as people see them (sRGB)."""

from __future__ import annotations

import re

from embodied_icrl.common.config import suggest

COLOURS = {
    # floors
    "oak": "#b98a58", "walnut": "#7d5638", "birch": "#d3b88f", "slate": "#7b8288",
    "tiles": "#c9d3d6", "terracotta": "#b5694a", "carpet": "#a99c8a", "blue_carpet": "#7288a0",
    "green_carpet": "#7f9178",
    # walls
    "white": "#eceae4", "cream": "#e9dcc0", "sage": "#c3cfb4", "sky": "#bcd3e2",
    "blush": "#e6c8c0", "lemon": "#ece2ac", "lilac": "#cfc6de", "stone": "#c6c4bf",
    # wood, metal and ceramics of furniture
    "light_wood": "#c99e67", "wood": "#9c6b3f", "dark_wood": "#5b3d28", "painted": "#dfe3e0",
    "steel": "#a6adb3", "dark_steel": "#4c5156", "black": "#22252a", "ceramic": "#f4f6f6",
    "glass": "#8fc1da", "water": "#7fb8cc", "linen": "#f1ece0", "shade": "#f2e3b3",
    # fabrics
    "navy": "#33496f", "forest": "#4b6b50", "rust": "#a3553a", "mustard": "#b98f35",
    "plum": "#6d4765", "grey": "#81868c", "sand": "#c2ae8c", "teal": "#3f7f85",
    # bright ones, kept for target objects
    "red": "#d3202c", "orange": "#f07c12", "yellow": "#f8d20f", "lime": "#8fce1f",
    "green": "#1f9a3c", "cyan": "#12b9d8", "blue": "#1d4fd8", "purple": "#7a2fc4",
    "magenta": "#e0218a", "pink": "#f79ac0", "brown": "#7b4a24", "tan": "#d9a867",
    "dark_green": "#125e34", "terracotta_pot": "#c45a2c", "screen": "#3aa0f0",
    "chocolate": "#4a2716", "silver": "#d5d9de", "book_green": "#2f7d5b", "snow": "#ffffff",
}  # fmt: skip

FLOORS = {
    "kitchen": ("tiles", "slate", "terracotta"),
    "bath": ("tiles", "slate", "blue_carpet"),
    "bedroom": ("carpet", "birch", "blue_carpet", "green_carpet"),
    "living": ("oak", "walnut", "birch", "carpet"),
    "dining": ("oak", "walnut", "birch", "terracotta"),
    "study": ("walnut", "oak", "green_carpet", "carpet"),
    "corridor": ("birch", "oak", "slate"),
}
WALLS = ("white", "cream", "sage", "sky", "blush", "lemon", "lilac", "stone")
WOODS = ("light_wood", "wood", "dark_wood", "painted")
FABRICS = ("navy", "forest", "rust", "mustard", "plum", "grey", "sand", "teal")


def rgb(colour: str) -> tuple[int, int, int]:
    """A colour's name, or `#rrggbb`, as sRGB bytes.

    Raises:
        ValueError: there is no colour of that name.
    """
    text = COLOURS.get(colour, colour)
    if not re.fullmatch(r"#[0-9a-fA-F]{6}", text):
        nearest = suggest(colour, list(COLOURS))
        raise ValueError(f"no colour {colour!r}: write #rrggbb or a name; {nearest}")
    return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)
