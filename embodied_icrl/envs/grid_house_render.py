"""Pictures of a grid house: from above, and as the agent sees it."""

from __future__ import annotations

import numpy as np

from embodied_icrl.envs import pictures
from embodied_icrl.envs.base import RenderState
from embodied_icrl.envs.grid_layout import Layout
from embodied_icrl.envs.grid_vision import DOOR, FIRST_TYPE, UNSEEN, WALL
from embodied_icrl.envs.object_kinds import KINDS

DOORWAY: pictures.Colour = (232, 214, 178)
VIEW_CELL = 48


def render_house(layout: Layout, view: np.ndarray, cell: tuple[int, int], goal: int) -> RenderState:
    """Draw a house.

    Args:
        layout: the house.
        view: cell codes of the agent's window, uint8 `[row, column]`.
        cell: row and column of the agent.
        goal: object type to find.
    """
    side = len(layout.walls) + 2
    size = pictures.cell_size(side)
    codes = np.full((side, side), WALL, dtype=np.int64)
    inside = codes[1:-1, 1:-1]
    inside[:] = np.where(layout.walls, WALL, np.where(layout.doors, DOOR, 0))
    inside[layout.objects >= 0] = layout.objects[layout.objects >= 0] + FIRST_TYPE
    targets = [
        (*pictures.centre(row + 1, column + 1, size), KINDS[goal].name)
        for row, column in np.argwhere(layout.objects == goal)
    ]
    return RenderState(
        agent_view=_agent_view(view),
        map=_draw(codes, size),
        pose=(*pictures.centre(cell[0] + 1, cell[1] + 1, size), None),
        targets=targets,
        target_label=KINDS[goal].name,
    )


def _agent_view(view: np.ndarray) -> np.ndarray:
    picture = _draw(view, VIEW_CELL)
    middle = len(view) // 2
    pictures.stamp(picture, middle, middle, VIEW_CELL, "dot", pictures.AGENT)
    return picture


def _draw(codes: np.ndarray, size: int) -> np.ndarray:
    """Cells by their codes, `[row, column]`."""
    picture = pictures.blank(codes.shape[0], codes.shape[1], size)
    for (row, column), code in np.ndenumerate(codes):
        if code == WALL:
            pictures.fill(picture, row, column, size, pictures.WALL)
        elif code == DOOR:
            pictures.fill(picture, row, column, size, DOORWAY)
        elif code == UNSEEN:
            pictures.fill(picture, row, column, size, pictures.DARK)
        elif code >= FIRST_TYPE:
            kind = KINDS[code - FIRST_TYPE]
            pictures.stamp(picture, row, column, size, kind.shape, kind.colour)
    return picture
