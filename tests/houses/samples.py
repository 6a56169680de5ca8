"""Houses that several tests look at, generated once per process."""

from __future__ import annotations

from functools import lru_cache

from embodied_icrl.houses.generate import HouseConfig, generate_house
from embodied_icrl.houses.spec import HouseSpec


@lru_cache(maxsize=16)
def house(seed: int, n_rooms: int) -> HouseSpec:
    return generate_house(seed, HouseConfig(n_rooms=n_rooms))
