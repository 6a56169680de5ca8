"""Houses that the tests of simulators share."""

from __future__ import annotations

from functools import lru_cache

from embodied_icrl.houses.generate import HouseConfig, generate_house
from embodied_icrl.houses.spec import Doorway, Furniture, HouseObject, HouseSpec, Room

CATEGORIES = ("ball", "mug", "suitcase")


@lru_cache(maxsize=16)
def generated(seed: int, n_rooms: int) -> HouseSpec:
    return generate_house(seed, HouseConfig(n_rooms=n_rooms))


@lru_cache(maxsize=1)
def two_rooms() -> HouseSpec:
    """Two square rooms of 4 m side by side, a doorway between them, a suitcase in the second."""
    return HouseSpec(
        name="two_rooms",
        rooms=(
            Room("a", "living", (0.0, 0.0, 4.0, 4.0)),
            Room("b", "study", (4.0, 0.0, 8.0, 4.0)),
        ),
        doorways=(Doorway(("a", "b"), (4.0, 1.0)),),
        furniture=(Furniture("rug", "rug", "small_rug", "a", (2.0, 0.0, 2.0)),),
        objects=(HouseObject("suitcase", "suitcase", "suitcase", "b", (7.0, 0.0, 3.0)),),
    )
