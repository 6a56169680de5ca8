"""What a reward may read: the fields that a task declares, and the read-only record of them."""

from __future__ import annotations

import keyword
import math
from collections import namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embodied_icrl.common.config import suggest
from embodied_icrl.common.errors import ConfigError

# Attributes of values that reward code handles: a field of the same name would be ambiguous there.
_TAKEN = frozenset(
    name
    for kind in (str, bytes, int, float, complex, list, tuple, dict, set, np.ndarray, np.float64)
    for name in dir(kind)
)


@dataclass(frozen=True)
class Field:
    """One quantity that a reward may read.

    Attributes:
        name: as in `state.name`.
        shape: () for a number, (3,) for a vector.
        unit: "m", "rad/s"; "-" for none.
        meaning: what it is, and in which frame; a phrase.

    Raises:
        ConfigError: the name can't be an attribute of the record.
    """

    name: str
    shape: tuple[int, ...]
    unit: str
    meaning: str

    def __post_init__(self) -> None:
        name = self.name
        plain = name.isidentifier() and name.isascii() and not keyword.iskeyword(name)
        if not plain or name.startswith("_"):
            raise ConfigError(f"field {self.name!r}: a name is an identifier without leading _")
        if self.name in _TAKEN:
            raise ConfigError(f"field {self.name!r}: arrays have an attribute of that name")
        if any(size < 1 for size in self.shape):
            raise ConfigError(f"field {self.name!r}: sizes are at least 1, not {self.shape}")

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)


class StateLayout:
    """Makes the records of a task: named tuples whose arrays nobody can write to.

    An array of a record lies in an immutable bytes object, so it stays as it is even for code that
    asks NumPy to make it writeable. Numbers (shape ()) are Python floats.
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        """Raises ConfigError where two fields have one name."""
        self.fields = tuple(fields)
        names = [field.name for field in self.fields]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise ConfigError(f"two fields have the name {doubled[0]!r}")
        if not names:
            raise ConfigError("a task declares at least one field")
        self._record: Any = namedtuple("State", names)  # type: ignore[misc]
        ends = np.cumsum([field.size for field in self.fields]).tolist()
        self.size = int(ends[-1])
        self._parts = [
            (end - field.size, end, field.shape) for field, end in zip(self.fields, ends)
        ]

    def flatten(self, values: Mapping[str, Any]) -> NDArray[np.float64]:
        """The values of all fields in their declared order, [size].

        Raises:
            ConfigError: a declared field is missing, one is not declared, or a shape is wrong.
        """
        if len(values) != len(self.fields) or any(f.name not in values for f in self.fields):
            self._refuse_names(values)
        flat = np.empty(self.size)
        for field, (start, end, shape) in zip(self.fields, self._parts):
            value = values[field.name]
            if not shape:
                flat[start] = value
                continue
            if np.shape(value) != shape:
                raise ConfigError(
                    f"field {field.name!r} is declared with shape {shape}, got {np.shape(value)}"
                )
            flat[start:end] = value if len(shape) == 1 else np.ravel(value)
        return flat

    def record(self, flat: NDArray[np.float64]) -> Any:
        """The read-only record of flat values [size]: `state.name` for each field."""
        frozen = np.frombuffer(flat.tobytes())
        values = [
            (frozen[start:end] if len(shape) == 1 else frozen[start:end].reshape(shape))
            if shape
            else float(frozen[start])
            for start, end, shape in self._parts
        ]
        return self._record._make(values)

    def __reduce__(self) -> tuple[Any, ...]:
        # The class of its records has no name that a pickle could refer to.
        return StateLayout, (self.fields,)

    def _refuse_names(self, values: Mapping[str, Any]) -> None:
        declared = [field.name for field in self.fields]
        missing = [name for name in declared if name not in values]
        if missing:
            raise ConfigError(f"the declared field {missing[0]!r} was not read from the simulator")
        extra = next(name for name in values if name not in declared)
        raise ConfigError(f"field {extra!r} is not declared; {suggest(extra, declared)}")
