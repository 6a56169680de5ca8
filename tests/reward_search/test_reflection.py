"""What training says about the components of a reward."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embodied_icrl.reward_search.reflection import number, reflect

RISING = tuple(i / 20 for i in range(21))


def marks(**curves):
    return {r.name: r.mark for r in reflect({"fitness": RISING, **curves}).components}


def test_ten_values_and_what_is_left_of_all():
    curve = reflect({"fitness": RISING}).fitness
    assert len(curve.values) == 10 and curve.values[0] == 0.0 and curve.values[-1] == 1.0
    assert (curve.low, curve.high) == (0.0, 1.0) and curve.mean == pytest.approx(0.5)
    assert reflect({"fitness": (0.1, 0.9)}).fitness.values == (0.1, 0.9)


def test_share_and_correlation():
    opposite = tuple(-3.0 * value for value in RISING)
    reviews = {
        r.name: r for r in reflect({"fitness": RISING, "a": RISING, "b": opposite}).components
    }
    assert reviews["a"].share == pytest.approx(0.25) and reviews["b"].share == pytest.approx(0.75)
    assert reviews["a"].correlation == pytest.approx(1.0)
    assert reviews["b"].correlation == pytest.approx(-1.0)
    assert list(reviews) == ["b", "a"]


def test_flat_and_dominating_components_are_marked():
    assert marks(zero=(0.0,) * 21, steady=(5.0, 5.1) * 10 + (5.0,)) == {
        "zero": "flat", "steady": "flat",
    }  # fmt: skip
    big = tuple(100.0 * value for value in RISING)
    assert marks(big=big, small=RISING) == {"big": "dominating", "small": "fine"}
    assert marks(only=big) == {"only": "fine"}


def test_advice_is_given_where_it_is_due():
    curves = {"zero": (0.0,) * 3, "big": (1.0, 60.0, 90.0), "flat": (1.0, 1.0, 1.0)}
    poor = reflect({"fitness": (0.0, 0.0, 0.01), **curves})
    assert not poor.succeeds
    text = poor.text
    for words in ("zero was never", "big outweighs", "flat hardly changed", "Success stayed near"):
        assert words in text
    good = reflect({"fitness": (0.0, 0.5, 0.9), "a": (0.1, 0.3, 0.2), "b": (0.5, 0.1, 0.2)})
    assert good.succeeds and good.advice == () and "Advice" not in good.text


def test_negative_fitness_that_rises_is_no_success_but_is_shown():
    reflection = reflect({"fitness": (-2.0, -1.0, -0.5)})
    assert "[-2, -1, -0.5]" in reflection.text


def test_steps_are_no_component_and_nothing_is_needed():
    empty = reflect({})
    assert (empty.fitness, empty.total, empty.components, empty.advice) == (None, None, (), ())
    assert empty.text == ""
    assert reflect({"step": (1.0, 2.0), "total": (1.0, 2.0)}).components == ()


@settings(max_examples=50)
@given(
    st.dictionaries(
        st.text(max_size=60) | st.sampled_from(["fitness", "total", "step"]),
        st.lists(st.floats() | st.floats(-1, 1), max_size=12),
        max_size=6,
    )
)
def test_anything_can_be_reflected(curves):
    reflection = reflect(curves)
    assert len(reflection.components) <= 32
    assert all(0.0 <= r.share <= 1.0 + 1e-9 for r in reflection.components)
    assert all(c.isprintable() or c == "\n" for c in reflection.text)
    assert all(len(line) < 400 for line in reflection.text.splitlines())


def test_a_flood_of_components_is_cut():
    curves = {f"c{i}": (float(i), 1.0) for i in range(1000)}
    assert len(reflect({"fitness": (0.0, 1.0), **curves}).components) == 32


@given(st.floats(-1e9, 1e9))
def test_numbers_do_not_show_the_last_bits(value):
    shown = number(value)
    assert float(shown) == pytest.approx(value, rel=0.006, abs=1e-8)
    assert number(0.1 + 0.2) == number(0.3) and number(-0.0) == number(1e-17) == "0"
    assert not math.isnan(float(shown))
