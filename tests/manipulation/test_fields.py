"""Records of declared fields."""

from __future__ import annotations

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embodied_icrl.common.errors import ConfigError
from embodied_icrl.manipulation.fields import Field, StateLayout

FIELDS = (
    Field("height", (), "m", "a number"),
    Field("tip", (2,), "m", "a vector"),
    Field("corners", (2, 3), "m", "a matrix"),
)
VALUES = {"height": 0.5, "tip": np.array([1.0, 2.0]), "corners": np.arange(6.0).reshape(2, 3)}


@given(arrays.arrays(np.float64, 9, elements=st.floats(allow_nan=False)))
def test_records_hold_what_was_put_in(flat):
    layout = StateLayout(FIELDS)
    state = layout.record(flat)
    assert isinstance(state.height, float)
    np.testing.assert_array_equal(
        layout.flatten({name: getattr(state, name) for name in VALUES}), flat
    )
    assert state.corners.shape == (2, 3)


def test_nobody_can_write_to_a_record():
    layout = StateLayout(FIELDS)
    flat = layout.flatten(VALUES)
    state = layout.record(flat)
    with pytest.raises(ValueError, match="read-only"):
        state.tip[0] = 3.0
    for array in (state.tip, state.corners):
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.setflags(write=True)
    with pytest.raises(AttributeError):
        state.tip = np.zeros(2)
    flat[:] = 0.0
    np.testing.assert_array_equal(state.tip, VALUES["tip"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tip": None}, "declared field 'tip' was not read"),
        ({"tipp": np.zeros(2)}, "'tipp' is not declared; did you mean 'tip'"),
        ({"tip": np.zeros(3)}, r"'tip' is declared with shape \(2,\), got \(3,\)"),
    ],
)
def test_values_that_do_not_fit_the_declaration(change, message):
    values = {key: value for key, value in {**VALUES, **change}.items() if value is not None}
    with pytest.raises(ConfigError, match=message):
        StateLayout(FIELDS).flatten(values)


@pytest.mark.parametrize("name", ["_hidden", "__class__", "a b", "class", "sum", "format", "dtype"])
def test_names_that_reward_code_could_not_use_safely(name):
    with pytest.raises(ConfigError, match="field"):
        Field(name, (), "m", "x")


def test_declarations_that_make_no_record():
    with pytest.raises(ConfigError, match="two fields"):
        StateLayout((FIELDS[0], FIELDS[0]))
    with pytest.raises(ConfigError, match="at least one"):
        StateLayout(())
    with pytest.raises(ConfigError, match="at least 1"):
        Field("tip", (0,), "m", "x")
