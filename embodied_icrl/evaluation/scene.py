"""One frame of a trial's video: the agent's view, the map with paths, numbers, attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import cos, pi, sin

import numpy as np

from embodied_icrl.envs.base import RenderState
from embodied_icrl.evaluation.canvas import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    RED,
    RULE,
    SAND,
    Canvas,
    Colour,
    font,
)

PANEL = 400
MARGIN = 24
WHITE: Colour = (255, 255, 255)
_PANEL_TOP = 112
_STRIP_TOP = _PANEL_TOP + PANEL + 20
_STRIP_HEIGHT = 196
HEIGHT = _STRIP_TOP + _STRIP_HEIGHT + 8
_RECENT_EPISODES = 24

Point = tuple[float, float]


@dataclass
class EpisodeRecord:
    """What the video knows of one episode, finished or running.

    ``path`` holds positions in map pixels, ``best`` the oracle's return, ``demo`` whether the
    oracle acts. ``success`` is None while the episode runs, and where success is not defined.
    """

    path: list[Point] = field(default_factory=list)
    returned: float = 0.0
    steps: int = 0
    best: float | None = None
    demo: bool = False
    finished: bool = False
    success: bool | None = None


@dataclass(frozen=True)
class AttentionView:
    """Where the newest token looks: averages over layers and heads that sum to 1.

    ``episodes``: mass on each episode of the trial so far, the running one last; ``sink``: mass on
    the sink; ``top_view``: what the agent saw at the most attended token, uint8 RGB;
    ``top_caption``: which token that is.
    """

    episodes: Sequence[float]
    sink: float
    top_view: np.ndarray
    top_caption: str


@dataclass(frozen=True)
class Scene:
    """Everything one frame shows; ``episodes`` ends with the running one."""

    title: str
    state: RenderState
    episodes: Sequence[EpisodeRecord]
    n_episodes: int | None
    step: int
    max_steps: int
    reward: float
    action: str = ""
    attention: AttentionView | None = None


def frame_size(attention: bool) -> tuple[int, int]:
    """Width and height in pixels of the frames of a video."""
    panels = 3 if attention else 2
    return panels * PANEL + (panels + 1) * MARGIN, HEIGHT


def draw_scene(scene: Scene) -> np.ndarray:
    """Draws a frame, uint8 RGB ``[height, width, 3]`` of `frame_size`."""
    width, height = frame_size(scene.attention is not None)
    canvas = Canvas(width, height)
    _header(canvas, scene, width)
    _view(canvas, scene)
    _map(canvas, scene)
    if scene.attention is not None:
        _attention(canvas, scene.attention)
    _numbers(canvas, scene)
    _charts(canvas, scene, width)
    return canvas.array()


def _panel_left(index: int) -> int:
    return MARGIN + index * (PANEL + MARGIN)


def _caption(canvas: Canvas, panel: int, text: str, note: str = "") -> None:
    left = _panel_left(panel)
    used = canvas.text((left, _PANEL_TOP - 28), text, size=15, bold=True)
    if note:
        canvas.text((left + used + 10, _PANEL_TOP - 26), note, size=13, colour=FAINT,
                    width=PANEL - used - 10)  # fmt: skip


def _header(canvas: Canvas, scene: Scene, width: int) -> None:
    now = scene.episodes[-1]
    total = f" of {scene.n_episodes}" if scene.n_episodes else ""
    canvas.text((MARGIN, 14), scene.title, size=14, colour=FAINT, width=width - 2 * MARGIN)
    used = canvas.text((MARGIN, 38), f"Episode {len(scene.episodes)}{total}", size=25, bold=True)
    step = f"step {scene.step} of at most {scene.max_steps}"
    canvas.text((MARGIN + used + 22, 46), step, size=18)
    text, colour = _status(now)
    if text:
        canvas.text((width - MARGIN, 42), text, size=20, bold=True, colour=colour, anchor="ra")


def _status(episode: EpisodeRecord) -> tuple[str, Colour]:
    """What the upper right corner says, with its colour."""
    if episode.finished:
        if episode.success is None:
            return "episode over", INK
        return ("success", GREEN) if episode.success else ("not reached", RED)
    return ("demonstration by the oracle", SAND) if episode.demo else ("", INK)


def _view(canvas: Canvas, scene: Scene) -> None:
    _caption(canvas, 0, "What the agent sees")
    canvas.picture((_panel_left(0), _PANEL_TOP, PANEL, PANEL), scene.state.agent_view)


def _map(canvas: Canvas, scene: Scene) -> None:
    earlier = len(scene.episodes) - 1
    note = "path now (blue)" + (", earlier episodes (grey)" if earlier else "")
    _caption(canvas, 1, "From above", note)
    box = (_panel_left(1), _PANEL_TOP, PANEL, PANEL)
    left, top, scale = canvas.picture(box, scene.state.map)

    def place(point: Point) -> Point:
        return left + point[0] * scale, top + point[1] * scale

    # Lines have a white edge, so that they can be seen on floors of every colour.
    for episode in scene.episodes[:-1]:
        canvas.path([place(p) for p in episode.path], WHITE, 5)
    for episode in scene.episodes[:-1]:
        canvas.path([place(p) for p in episode.path], FAINT, 2)
    targets = [(place((column, row)), label) for column, row, label in scene.state.targets]
    for centre, _ in targets:
        canvas.disc(centre, 13, None, WHITE, 6)
        canvas.disc(centre, 12, None, GREEN, 4)
    path = [place(p) for p in scene.episodes[-1].path]
    canvas.path(path, WHITE, 7)
    canvas.path(path, BLUE, 4)
    canvas.disc(path[0], 5, WHITE, BLUE)
    for centre, label in targets:
        if label:
            _label(canvas, centre, label, box)
    column, row, heading = scene.state.pose
    _agent(canvas, place((column, row)), heading)


def _label(canvas: Canvas, centre: Point, label: str, box: tuple[int, int, int, int]) -> None:
    """A target's name beside its ring, inside the panel."""
    x, y = centre
    right = x < box[0] + 0.7 * box[2]
    place = (x + 17, y) if right else (x - 17, y)
    anchor = "lm" if right else "rm"
    bounds = canvas.draw.textbbox(place, label, font=font(14, True), anchor=anchor)
    canvas.draw.rectangle((bounds[0] - 3, bounds[1] - 2, bounds[2] + 3, bounds[3] + 2), fill=WHITE)
    canvas.text(place, label, size=14, bold=True, colour=GREEN, anchor=anchor)


def _agent(canvas: Canvas, centre: Point, heading: float | None) -> None:
    """A disc, or an arrow head that points to ``heading`` (radians clockwise from up)."""
    if heading is None:
        canvas.disc(centre, 10, BLUE, WHITE)
        return
    x, y = centre
    corners = [(0.0, 20.0), (2.45, 16.0), (pi, 7.0), (-2.45, 16.0)]
    shape = [(x + r * sin(heading + angle), y - r * cos(heading + angle)) for angle, r in corners]
    canvas.draw.polygon(shape, fill=BLUE, outline=WHITE, width=2)


def _attention(canvas: Canvas, view: AttentionView) -> None:
    left = _panel_left(2)
    _caption(canvas, 2, "Where its memory looks")
    side = PANEL - 168
    canvas.picture((left, _PANEL_TOP, PANEL, side), view.top_view)
    canvas.text((left + PANEL / 2, _PANEL_TOP + side + 6), view.top_caption, size=13,
                colour=FAINT, anchor="ma", width=PANEL)  # fmt: skip
    recent = list(view.episodes)[-_RECENT_EPISODES:]
    first = len(view.episodes) - len(recent) + 1
    labels = ["sink", *(str(first + i) for i in range(len(recent)))]
    labels[-1] = "now"
    values = [100 * view.sink, *(100 * mass for mass in recent)]
    colours = [FAINT, *([BLUE] * len(recent))]
    canvas.bars((left, _PANEL_TOP + side + 30, PANEL, 138), "attention per episode, %", values,
                colours, top=max(values), labels=labels, form="{:.0f}")  # fmt: skip


def _numbers(canvas: Canvas, scene: Scene) -> None:
    now, left = scene.episodes[-1], MARGIN
    canvas.draw.line((left, _STRIP_TOP - 8, canvas.image.width - left, _STRIP_TOP - 8), fill=RULE)
    finished = [e for e in scene.episodes if e.finished]
    judged = [e for e in finished if e.success is not None]
    best = "" if now.best is None else f"   (best possible {now.best:.4g})"
    rows = [
        ("target", scene.state.target_label or "not told to the agent"),
        ("last action", scene.action or "none yet"),
        ("last reward", f"{scene.reward:+.4g}"),
        ("return", f"{now.returned:.4g}{best}"),
    ]
    if judged:
        missed = sum(not e.success for e in judged)
        note = "   (misses in red)" if missed else ""
        rows.append(("successes", f"{len(judged) - missed} of {len(judged)}{note}"))
    for index, (name, value) in enumerate(rows):
        y = _STRIP_TOP + 8 + 34 * index
        canvas.text((left, y + 2), name, size=13, colour=FAINT)
        canvas.text((left + 96, y), value, size=16, bold=True, width=PANEL - 96)


def _charts(canvas: Canvas, scene: Scene, width: int) -> None:
    """Return and steps of each episode so far, the running one paler."""
    shown = list(scene.episodes)[-_RECENT_EPISODES:]
    first = len(scene.episodes) - len(shown) + 1
    slots = len(shown)
    if scene.n_episodes and scene.n_episodes <= _RECENT_EPISODES:
        slots = max(scene.n_episodes, len(shown))
    blank = [None] * (slots - len(shown))
    labels = [str(first + slot) for slot in range(slots)]
    colours = [_episode_colour(e) for e in shown]
    left = _panel_left(1)
    room = width - MARGIN - left
    half = (room - MARGIN) // 2
    charts = [(left, half), (left + half + MARGIN, half)]
    bests = [e.best for e in shown if e.best is not None]
    top = max([1e-9, *(e.returned for e in shown), *bests])
    mark = " (line: best)" if bests else ""
    canvas.bars((charts[0][0], _STRIP_TOP, charts[0][1], _STRIP_HEIGHT),
                f"return{mark}", [*(e.returned for e in shown), *blank], colours,
                top=top, marks=[e.best for e in shown], labels=labels, form="{:.3g}")  # fmt: skip
    canvas.bars((charts[1][0], _STRIP_TOP, charts[1][1], _STRIP_HEIGHT), "steps",
                [*(e.steps for e in shown), *blank], colours,
                top=float(scene.max_steps), labels=labels)  # fmt: skip


def _episode_colour(episode: EpisodeRecord) -> Colour:
    colour = SAND if episode.demo else BLUE
    if episode.finished and episode.success is False:
        colour = RED
    return colour if episode.finished else _blend(colour, 0.45)


def _blend(colour: Colour, strength: float) -> Colour:
    """``colour`` mixed with white."""
    mixed = [round(strength * c + (1 - strength) * 255) for c in colour]
    return mixed[0], mixed[1], mixed[2]
