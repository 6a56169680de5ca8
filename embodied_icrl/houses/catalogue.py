"""Categories of target objects, where they lie, and the semantic ids of everything in a house."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple

from embodied_icrl.houses.furniture_models import FURNITURE_KINDS
from embodied_icrl.houses.object_models import OBJECT_MODELS

CATEGORIES = tuple(OBJECT_MODELS)

_TABLES = ("table", "coffee_table", "desk", "console", "dresser")
_KITCHEN = ("counter", "sink", "stove", "table", "dresser", "coffee_table", "stool")
_SMALL = ("nightstand", "bookshelf", "tv_stand", "stool")
_SEATS = ("sofa", "armchair", "bed")


@dataclass(frozen=True)
class Places:
    """Where a category is found: kinds of furniture, and of rooms whose floor it may be on."""

    receptacles: Tuple[str, ...] = ()
    floors: Tuple[str, ...] = ()


PLACES = {
    "pineapple": Places(("counter", "sink", "table", "dresser", "coffee_table", "stool")),
    "mug": Places((*_KITCHEN, "desk", "nightstand", "bookshelf", "tv_stand")),
    "bowl": Places((*_KITCHEN, "console")),
    "bottle": Places((*_KITCHEN, "console", "nightstand", "tv_stand")),
    "teapot": Places((*_KITCHEN, "console")),
    "cake": Places(("counter", "table", "dresser", "coffee_table", "sink", "desk")),
    "books": Places((*_TABLES, *_SMALL, "bed"), ("study", "living", "bedroom")),
    "laptop": Places((*_TABLES, "bed", "sofa", "counter"), ("bedroom", "living")),
    "lamp": Places((*_TABLES, "nightstand", "tv_stand", "bookshelf", "counter", "washing_machine")),
    "vase": Places((*_TABLES, "washbasin", "counter", "bookshelf", "washing_machine")),
    "plant": Places(
        ("console", "dresser", "table", "bookshelf"),
        ("living", "study", "corridor", "dining", "bath", "bedroom", "kitchen"),
    ),
    "cushion": Places(_SEATS, ("living", "bedroom", "study")),
    "teddy": Places((*_SEATS, "nightstand", "bookshelf", "dresser"), ("bedroom", "living")),
    "ball": Places(("bathtub",), ("living", "bedroom", "study", "corridor", "dining", "kitchen")),
    "shoes": Places(("console",), ("corridor", "bedroom", "living", "study", "bath", "kitchen")),
    "backpack": Places((*_SEATS, "desk"), ("corridor", "study", "bedroom", "living", "dining")),
    "basket": Places(("washing_machine", "bed"), ("bath", "kitchen", "bedroom", "corridor")),
    "guitar": Places((), ("living", "bedroom", "study", "corridor", "dining")),
    "truck": Places((*_SMALL, "coffee_table", "bed", "bathtub"), ("bedroom", "living", "study")),
    "globe": Places((*_TABLES, "bookshelf", "nightstand"), ("study",)),
    "watering_can": Places(
        ("console", "counter", "sink", "washing_machine", "washbasin"),
        ("kitchen", "living", "bath", "corridor", "dining"),
    ),
    "suitcase": Places(("bed",), ("bedroom", "corridor", "study", "living", "dining")),
    "duck": Places(
        ("bathtub", "washbasin", "washing_machine", *_SMALL, "dresser", "sink"), ("bath",)
    ),
    "gift": Places((*_TABLES, *_SEATS, "nightstand", "counter"), ("living", "dining", "bedroom")),
}

UNLABELLED, FLOOR_ID, WALL_ID = 0, 1, 2
_FIRST_FURNITURE, _FIRST_OBJECT = 10, 100


def semantic_id(kind: str) -> int:
    """The number of "floor", "wall", a kind of furniture or a category; KeyError for others."""
    return SEMANTIC_IDS[kind]


SEMANTIC_IDS = {
    "unlabelled": UNLABELLED,
    "floor": FLOOR_ID,
    "wall": WALL_ID,
    **{kind: _FIRST_FURNITURE + i for i, kind in enumerate(FURNITURE_KINDS)},
    **{category: _FIRST_OBJECT + i for i, category in enumerate(CATEGORIES)},
}
