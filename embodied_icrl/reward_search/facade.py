"""All that reward code can reach: pure functions of NumPy and math, and a few builtins.

The real modules give files, processes and global state away; these namespaces hold nothing but
the listed functions and constants.
"""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np


def words(text: str) -> frozenset[str]:
    """A list of names."""
    return frozenset(text.split())


NUMPY_NAMES = words("""
    abs absolute add all allclose amax amin any arange arccos arccosh arcsin arcsinh arctan arctan2
    arctanh argmax argmin argsort array asarray atleast_1d atleast_2d average bool_ cbrt ceil clip
    column_stack concatenate copysign cos cosh count_nonzero cross cumprod cumsum deg2rad degrees
    diag diff divide dot dstack e einsum equal exp exp2 expand_dims expm1 eye fabs fix
    flip float32 float64 floor floor_divide fmax fmin full full_like greater greater_equal
    heaviside hstack hypot identity inf inner int32 int64 interp isclose isfinite isinf isnan kron
    less less_equal linspace log log10 log1p log2 logaddexp logical_and logical_not logical_or
    logical_xor logspace matmul max maximum mean median min minimum mod moveaxis multiply nan
    nan_to_num nanmax nanmean nanmin nansum ndim negative newaxis nonzero not_equal ones
    ones_like outer pad percentile pi power prod ptp quantile rad2deg radians ravel
    reciprocal remainder repeat reshape round searchsorted select shape sign sin sinc sinh size
    sort sqrt square squeeze stack std subtract sum swapaxes take tan tanh tensordot tile trace
    transpose trapezoid tril triu true_divide trunc unwrap var vdot vstack where zeros zeros_like
    linalg.norm linalg.det linalg.inv linalg.pinv linalg.solve linalg.lstsq linalg.eigvalsh
    linalg.matrix_rank linalg.cholesky
""")

MATH_NAMES = words("""
    acos acosh asin asinh atan atan2 atanh ceil copysign cos cosh degrees dist e erf exp expm1 fabs
    floor fmod fsum hypot inf isclose isfinite isinf isnan log log10 log1p log2 nan pi pow radians
    sin sinh sqrt tan tanh tau trunc
""")

BUILTIN_NAMES = words("""
    abs all any bool dict enumerate float int isinstance len list max min range reversed round set
    sorted str sum tuple zip True False None
""")

MAX_RANGE = 10_000
TEXT_OF = "__text_of__"  # what f-strings call; no name that reward code may have


def bounded_range(*bounds: int) -> range:
    """`range`, refused where it is longer than any loop of a reward needs to be."""
    numbers = range(*bounds)
    if len(numbers[: MAX_RANGE + 1]) > MAX_RANGE:
        raise ValueError(f"a loop over more than {MAX_RANGE} numbers")
    return numbers


def text_of(value: object) -> str:
    """`str` of a number or text. Of anything else it could tell an address, which is random.

    Raises:
        TypeError: the value is neither.
    """
    if not isinstance(value, bool | int | float | str | np.number | np.bool_):
        raise TypeError(f"no text for a {type(value).__name__}; round a number instead")
    return str(value)


def namespace() -> dict[str, Any]:
    """The globals of reward code."""
    builtins = {name: _BUILTINS[name] for name in BUILTIN_NAMES if name in _BUILTINS}
    builtins["__import__"] = _import_for_numpy
    builtins[TEXT_OF] = text_of
    numpy = _select(np, NUMPY_NAMES)
    return {
        "__builtins__": builtins,
        "np": numpy,
        "numpy": numpy,
        "math": _select(math, MATH_NAMES),
    }


def _import_for_numpy(name: str, *_: Any, **__: Any) -> Any:
    """What array methods written in C call to find their Python half; reward code can't name it."""
    if not name.startswith("numpy._core."):
        raise ImportError(name)
    return sys.modules[name]


_BUILTINS: dict[str, Any] = {
    "abs": abs, "all": all, "any": any, "bool": bool, "dict": dict, "enumerate": enumerate,
    "float": float, "int": int, "isinstance": isinstance, "len": len, "list": list, "max": max,
    "min": min, "range": bounded_range, "reversed": reversed, "round": round, "set": set,
    "sorted": sorted, "str": text_of, "sum": sum, "tuple": tuple, "zip": zip,
}  # fmt: skip


def _select(module: Any, names: frozenset[str]) -> SimpleNamespace:
    flat = {name: getattr(module, name) for name in names if "." not in name}
    for group in {name.split(".")[0] for name in names if "." in name}:
        inner = getattr(module, group)
        members = [name.split(".")[1] for name in names if name.startswith(f"{group}.")]
        flat[group] = SimpleNamespace(**{name: getattr(inner, name) for name in members})
    return SimpleNamespace(**flat)
