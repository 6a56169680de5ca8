from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from embodied_icrl.runs.checkpoint_files import tensor_bytes
from embodied_icrl.runs.packing import pack, unpack


def through_disk(state: Any) -> Any:
    import safetensors.torch

    data, tensors = pack(state)
    restored = safetensors.torch.load(tensor_bytes(tensors)) if tensors else {}
    return unpack(json.loads(json.dumps(data, allow_nan=False)), restored)


def assert_same(one: Any, two: Any) -> None:
    assert type(one) is type(two)
    if isinstance(one, np.ndarray):
        assert one.dtype == two.dtype
        np.testing.assert_array_equal(one, two)
        assert one.shape == two.shape
    elif isinstance(one, dict):
        assert list(one) == list(two)
        for key in one:
            assert_same(one[key], two[key])
    elif isinstance(one, list):
        assert len(one) == len(two)
        for item, other in zip(one, two, strict=True):
            assert_same(item, other)
    elif isinstance(one, torch.Tensor):
        assert one.dtype == two.dtype
        assert torch.equal(one, two)
    else:
        assert one == two or (math.isnan(one) and math.isnan(two))


dtypes = st.sampled_from(
    [np.bool_, np.uint8, np.int8, np.int16, np.int32, np.int64, np.uint16, np.uint32, np.uint64]
    + [np.float16, np.float32, np.float64]
)
arrays = dtypes.flatmap(lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0)))
values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | arrays
states = st.dictionaries(
    st.text(max_size=3),
    st.recursive(
        values,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
        max_leaves=5,
    ),
    max_size=3,
)


@given(states)
def test_round_trip(state: dict[str, Any]) -> None:
    assert_same(through_disk(state), state)


def test_random_states_scalars_and_tensors() -> None:
    shared = torch.arange(6.0)
    state = {
        "rng": np.random.default_rng(3).bit_generator.state,
        "scalar": np.float32(0.1),
        "flag": np.True_,
        "count": np.int64(2**62),
        "bf16": torch.ones(2, 3, dtype=torch.bfloat16),
        "view": shared[1:3],
        "other": shared.view(2, 3).T,
        "a.b": torch.tensor(1),
        "a": {"b": torch.tensor(2)},
    }
    assert_same(through_disk(state), state)


def test_tuples_become_lists_and_generators_continue() -> None:
    assert through_disk({"a": (1, (2, 3))}) == {"a": [1, [2, 3]]}
    generator = torch.Generator().manual_seed(1)
    torch.rand(5, generator=generator)
    saved = through_disk({"g": generator.get_state()})["g"]
    expected = torch.rand(4, generator=generator)
    again = torch.Generator()
    again.set_state(saved)
    assert torch.equal(torch.rand(4, generator=again), expected)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"env": {"thing": object()}}, "state.env.thing"),
        ({"env": [1, {2}]}, "state.env.1"),
        ({"env": np.array(["text"])}, "state.env"),
        ({"env": np.array([None])}, "state.env"),
        ({"env": {1: 2}}, "state.env"),
        ({"$stored": 2}, "state"),
    ],
)
def test_what_cannot_be_stored_is_named(state: Any, expected: str) -> None:
    with pytest.raises(TypeError, match=expected):
        pack(state)
