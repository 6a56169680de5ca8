from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Literal, Optional, Protocol, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from embodied_icrl.common.config import build, describe, option, to_dict
from embodied_icrl.common.errors import ConfigError


@dataclass(frozen=True)
class Optimiser:
    lr: float = option(1e-3, "step size")
    schedule: Literal["constant", "cosine"] = option("constant", "shape over the run")
    warmup: Optional[int] = option(None, "steps")


@dataclass(frozen=True)
class Momentum(Optimiser):
    beta: float = option(0.9, "decay")


@dataclass(frozen=True)
class Square:
    side: int = option(doc="cells")

    def area(self) -> int:
        return self.side**2


@dataclass(frozen=True)
class Rectangle:
    width: int = option(2, "cells")
    height: int = option(3, "cells")

    def area(self) -> int:
        return self.width * self.height


@dataclass(frozen=True)
class NoArea:
    side: int = option(1)


class HasArea(Protocol):
    def area(self) -> int: ...


@dataclass(frozen=True)
class Even:
    value: int = option(2)

    def __post_init__(self) -> None:
        if self.value % 2:
            raise ConfigError(f"value ({self.value}) must be even")


@dataclass(frozen=True)
class Whole:
    steps: int = option(doc="environment steps")
    seed: int = option(0, "number")
    name: str = option("run", "label")
    debug: bool = option(False, "tracebacks")
    resume: Union[bool, Literal["auto"]] = option("auto", "continue the run")
    size: tuple[int, int] = option((3, 4), "cells")
    sizes: tuple[float, ...] = option((), "metres")
    names: list[str] = option(["a"], "labels")
    optimiser: Optimiser = option(Optimiser, "how weights move")
    shape: Union[Square, Rectangle, None] = option(None, "area")
    any_shape: Optional[HasArea] = option(None, "area of any class")
    shapes: dict[str, Union[Square, Rectangle]] = option(dict, "areas by name")
    limits: dict[str, float] = option({"low": 0.0}, "bounds")
    extra: Any = option(None, "whatever")
    number: int | float | None = option(None, "either")


HERE = __name__


def refusal(node: Any, cls: Any = Whole) -> str:
    with pytest.raises(ConfigError) as caught:
        build(node, cls)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_defaults_are_filled() -> None:
    config = build({"steps": 5}, Whole)
    assert config == Whole(steps=5)
    assert config.optimiser == Optimiser(1e-3, "constant", None)
    assert config.names == ["a"]


def test_mutable_defaults_are_not_shared() -> None:
    Whole(steps=1).names.append("b")
    assert Whole(steps=1).names == ["a"]


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({"steps": 1, "sed": 2}, ["'sed'", "'seed'"]),
        ({"steps": 1, "optimiser": {"lrr": 2}}, ["'optimiser.lrr'", "'lr'"]),
        ({"steps": 1, "qqqqq": 2}, ["'qqqqq'", "'steps'", "'seed'", "'optimiser'"]),
        (
            {"steps": 1, "shapes": {"a": {"_target_": f"{HERE}.Square", "sid": 1}}},
            ["'shapes.a.sid'", "'side'"],
        ),
        ({}, ["missing key 'steps'", "int", "environment steps"]),
        ({"steps": "???"}, ["missing key 'steps'"]),
        ({"steps": 1, "seed": "???"}, ["missing key 'seed'"]),
        ({"steps": 1, "any_shape": {"_target_": f"{HERE}.Square"}}, ["'any_shape.side'"]),
    ],
)
def test_wrong_keys_name_the_path_and_the_nearest(node: Any, expected: list[str]) -> None:
    message = refusal(node)
    for part in expected:
        assert part in message


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("steps", True, ["steps", "int", "True"]),
        ("steps", None, ["int", "null"]),
        ("steps", "5", ["int", "'5'"]),
        ("steps", 1e3, ["int", "write 1000"]),
        ("steps", 1.5, ["int", "1.5"]),
        ("steps", [1], ["int", "[1]"]),
        ("debug", 1, ["bool", "1"]),
        ("debug", "yes", ["bool", "'yes'"]),
        ("name", 3, ["str", "quotes"]),
        ("name", {"a": 1}, ["str"]),
        ("resume", 1, ["bool or 'auto'", "1"]),
        ("resume", "never", ["bool or 'auto'", "'never'"]),
        ("size", [1], ["size", "2 values", "[int, int]"]),
        ("size", [1, 2, 3], ["2 values"]),
        ("size", [1, 2.5], ["size[1]", "int"]),
        ("size", "ab", ["[int, int]"]),
        ("sizes", [1, "x"], ["sizes[1]", "float"]),
        ("sizes", {"a": 1}, ["list of float"]),
        ("names", "a", ["list of str"]),
        ("names", [None], ["names[0]", "null"]),
        ("optimiser", 3, ["optimiser", "Optimiser", "3"]),
        ("optimiser", None, ["optimiser", "null"]),
        ("optimiser", {"lr": "1e-3"}, ["optimiser.lr", "float"]),
        ("optimiser", {"lr": True}, ["optimiser.lr", "float", "True"]),
        ("optimiser", {"lr": float("nan")}, ["optimiser.lr", "finite"]),
        ("optimiser", {"lr": float("inf")}, ["optimiser.lr", "finite"]),
        ("optimiser", {"schedule": "cosin"}, ["optimiser.schedule", "'constant' or 'cosine'"]),
        ("optimiser", {"schedule": False}, ["quotes"]),
        ("optimiser", {"warmup": 0.5}, ["optimiser.warmup", "int or null"]),
        ("optimiser", {"warmup": 2.0}, ["write 2"]),
        ("limits", {"low": "x"}, ["limits.low", "float"]),
        ("limits", [1], ["limits", "mapping to float"]),
        ("limits", {1: 1.0}, ["limits", "str"]),
        ("shape", 3, ["shape", "Square or Rectangle or null"]),
        ("shape", {"side": 1, "width": 1}, ["shape._target_", "none of"]),
        ("shape", {}, None),
        ("any_shape", {"side": 1}, ["any_shape._target_ is missing", "HasArea"]),
        ("number", "x", ["int or float or null"]),
    ],
)
def test_wrong_types_name_the_path_and_the_type(key: str, value: Any, expected: Any) -> None:
    node = {"steps": 1, key: value}
    if expected is None:
        build(node, Whole)
        return
    message = refusal(node)
    for part in [key, *expected]:
        assert part in message


def test_lossless_conversions_only() -> None:
    config = build({"steps": 1, "optimiser": {"lr": 1}, "size": [1, 2], "sizes": (1, 2)}, Whole)
    assert type(config.optimiser.lr) is float
    assert config.size == (1, 2)
    assert config.sizes == (1.0, 2.0) and all(type(size) is float for size in config.sizes)


def test_a_union_keeps_the_type_of_the_value() -> None:
    assert type(build({"steps": 1, "number": 3}, Whole).number) is int
    assert type(build({"steps": 1, "number": 3.0}, Whole).number) is float
    assert build({"steps": 1, "resume": True}, Whole).resume is True
    assert build({"steps": 1, "resume": "auto"}, Whole).resume == "auto"


def test_a_union_of_dataclasses_is_told_by_its_keys_or_its_target() -> None:
    assert build({"steps": 1, "shape": {"side": 3}}, Whole).shape == Square(3)
    assert build({"steps": 1, "shape": {"width": 3}}, Whole).shape == Rectangle(3)
    node = {"_target_": f"{HERE}.Rectangle", "width": 3}
    assert build({"steps": 1, "shape": node}, Whole).shape == Rectangle(3)
    two = Union[Rectangle, Optimiser]
    assert "more than one" in refusal({}, two)


def test_the_message_of_one_dataclass_in_a_union_is_its_own() -> None:
    assert "'sde'" in refusal({"sde": 1}, Union[int, Square])


def test_target_resolves_subclasses_protocols_and_top_level_nodes() -> None:
    node = {"_target_": f"{HERE}.Momentum", "beta": 0.5}
    assert build(node) == Momentum(beta=0.5)
    assert build({"steps": 1, "optimiser": node}, Whole).optimiser == Momentum(beta=0.5)
    square = {"_target_": f"{HERE}.Square", "side": 2}
    assert build({"steps": 1, "any_shape": square}, Whole).any_shape == Square(2)
    assert build({"steps": 1, "extra": {"deep": [square]}}, Whole).extra == {"deep": [Square(2)]}


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (3, ["dotted name", "3"]),
        ("Square", ["dotted name", "'Square'"]),
        ("no_such_module.Square", ["no_such_module"]),
        (f"{HERE}.Squar", ["'Squar'", "'Square'"]),
        (f"{HERE}.refusal", ["not a dataclass"]),
        (f"{HERE}.NoArea", ["NoArea is not a HasArea"]),
    ],
)
def test_unusable_targets(target: Any, expected: list[str]) -> None:
    message = refusal({"steps": 1, "any_shape": {"_target_": target, "side": 1}})
    for part in ["any_shape._target_", *expected]:
        assert part in message


def test_target_of_the_wrong_class_is_refused() -> None:
    assert "Square is not a Optimiser" in refusal(
        {"steps": 1, "optimiser": {"_target_": f"{HERE}.Square", "side": 1}}
    )
    message = refusal({"steps": 1, "shape": {"_target_": f"{HERE}.Momentum"}})
    assert "Momentum is not a Square or Rectangle or null" in message


def test_a_module_that_fails_to_import_is_named_with_its_error(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_user_module.py").write_text("raise RuntimeError('half written')")
    monkeypatch.syspath_prepend(tmp_path)
    message = refusal({"_target_": "broken_user_module.Config"}, Any)
    assert "broken_user_module" in message and "half written" in message


def test_users_own_dataclass_without_options(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_room.py").write_text(
        "from dataclasses import dataclass\n@dataclass\nclass MyRoom:\n    size: int\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    room = build({"_target_": "my_room.MyRoom", "size": 4})
    assert room.size == 4
    assert to_dict(room, target=True) == {"_target_": "my_room.MyRoom", "size": 4}


def test_a_refusal_by_the_dataclass_gets_the_path() -> None:
    message = refusal({"_target_": f"{HERE}.Even", "value": 3}, Any)
    assert message == "value (3) must be even"
    message = refusal({"steps": 1, "extra": {"even": {"_target_": f"{HERE}.Even", "value": 3}}})
    assert message == "extra.even: value (3) must be even"


def test_a_refusal_that_names_the_path_itself_is_left_alone() -> None:
    @dataclass(frozen=True)
    class Own:
        size: int = 0

        def __post_init__(self) -> None:
            raise ConfigError(f"ppo.size={self.size} is too small")

    with pytest.raises(ConfigError) as caught:
        build({}, Own, "ppo")
    assert str(caught.value) == "ppo.size=0 is too small"
    with pytest.raises(ConfigError, match="^env: ppo.size=0"):
        build({}, Own, "env")


def test_nodes_that_are_no_mappings() -> None:
    assert "mapping" in refusal([1], Whole)
    assert "mapping" in refusal(None, Whole)
    assert "_target_ is missing" in refusal({"side": 1}, None)


def test_instances_pass_through() -> None:
    square = Square(2)
    assert build(square, Square) is square
    assert build({"steps": 1, "shape": square}, Whole).shape is square
    assert "Rectangle" in refusal({"steps": 1, "optimiser": Rectangle()})


def test_omegaconf_nodes() -> None:
    node = OmegaConf.create(
        {"steps": 4, "seed": "${steps}", "shape": {"side": "${seed}"}, "size": [1, 2]}
    )
    assert build(node, Whole) == Whole(steps=4, seed=4, shape=Square(4), size=(1, 2))
    assert "missing key 'steps'" in refusal(OmegaConf.create({"steps": "???"}))
    assert "nowhere" in refusal(OmegaConf.create({"steps": "${nowhere}"}))


def test_to_dict_names_classes_only_where_the_type_leaves_a_choice() -> None:
    data = to_dict(Whole(steps=1, optimiser=Momentum(), shape=Square(1), shapes={"a": Square(2)}))
    assert "_target_" not in data
    assert data["optimiser"]["_target_"] == f"{HERE}.Momentum"
    assert data["shape"] == {"_target_": f"{HERE}.Square", "side": 1}
    assert data["shapes"]["a"]["_target_"] == f"{HERE}.Square"
    assert "_target_" not in to_dict(Whole(steps=1))["optimiser"]
    assert data["size"] == [3, 4]


finite = st.floats(allow_nan=False, allow_infinity=False)
text = st.text(max_size=5).filter(lambda value: value != "???")
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | text,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.just("k"), inner),
    max_leaves=4,
)
optimisers = st.builds(
    Optimiser,
    lr=finite,
    schedule=st.sampled_from(["constant", "cosine"]),
    warmup=st.none() | st.integers(),
)
shapes = st.builds(Square, side=st.integers()) | st.builds(
    Rectangle, width=st.integers(), height=st.integers()
)
wholes = st.builds(
    Whole,
    steps=st.integers(),
    name=text,
    debug=st.booleans(),
    resume=st.booleans() | st.just("auto"),
    size=st.tuples(st.integers(), st.integers()),
    sizes=st.lists(finite, max_size=3).map(tuple),
    names=st.lists(text, max_size=3),
    optimiser=optimisers | st.builds(Momentum, beta=finite),
    shape=st.none() | shapes,
    any_shape=st.none() | shapes,
    shapes=st.dictionaries(text.filter(lambda key: key != "_target_"), shapes, max_size=2),
    limits=st.dictionaries(text, finite, max_size=2),
    extra=plain | shapes,
    number=st.none() | st.integers() | finite,
)


@given(wholes)
def test_round_trip_through_json(config: Whole) -> None:
    data = json.loads(json.dumps(to_dict(config)))
    rebuilt = build(data, Whole)
    assert rebuilt == config
    assert json.dumps(to_dict(rebuilt)) == json.dumps(data)
    assert build(to_dict(config, target=True)) == config


@given(st.data(), wholes)
def test_every_single_misspelling_is_refused(data: st.DataObject, config: Whole) -> None:
    node = to_dict(config)
    key = data.draw(st.sampled_from(sorted(node)))
    node[key + "x"] = node.pop(key)
    assert f"'{key}'" in refusal(node)


def test_describe_lists_every_key_with_type_default_and_doc() -> None:
    lines = {line.key: line for line in describe(Whole)}
    assert lines["steps"] == ("steps", "int", dataclasses.MISSING, "environment steps")
    assert lines["optimiser.lr"] == ("optimiser.lr", "float", 1e-3, "step size")
    assert lines["optimiser.schedule"].type == "'constant' or 'cosine'"
    assert lines["resume"].type == "bool or 'auto'"
    assert lines["size"][1:3] == ("[int, int]", [3, 4])
    assert lines["shape"].type == "Square or Rectangle or null"
    assert lines["number"].type == "int or float or null"
    assert lines["extra"].type == "any value or null" or lines["extra"].type == "any value"


def test_describe_takes_defaults_from_the_config_above() -> None:
    @dataclass(frozen=True)
    class Outer:
        inner: Rectangle = option(Rectangle(width=7), "nested")

    # the hint is resolved in this module, where Rectangle is defined
    assert {line.key: line.default for line in describe(Outer)} == {
        "inner.width": 7,
        "inner.height": 3,
    }
