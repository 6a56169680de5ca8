"""The proposer without a language model."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from embodied_icrl.common.config import build
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.common.paths import config_dir
from embodied_icrl.manipulation.adroit import AdroitDoor
from embodied_icrl.manipulation.fetch import FetchPickAndPlace, FetchPush, FetchReach
from embodied_icrl.manipulation.fields import Field
from embodied_icrl.manipulation.planar_push import PlanarPush
from embodied_icrl.manipulation.planar_reach import PlanarReach
from embodied_icrl.manipulation.shadow_hand import HandBlock
from embodied_icrl.manipulation.task import Task
from embodied_icrl.manipulation.valve_turn import ValveTurn
from embodied_icrl.reward_search.accounting import Accounting
from embodied_icrl.reward_search.checks import check_reward
from embodied_icrl.reward_search.extract import extract_reward
from embodied_icrl.reward_search.facade import words
from embodied_icrl.reward_search.proposers.term_code import component_names, read
from embodied_icrl.reward_search.proposers.term_roles import find_roles
from embodied_icrl.reward_search.proposers.terms import TermsConfig, TermsProposer
from embodied_icrl.reward_search.records import Parent, Request
from embodied_icrl.reward_search.static_check import check_source
from embodied_icrl.reward_search.task_template import NewTask
from embodied_icrl.reward_search.transitions import record_episodes

FILES = sorted((config_dir() / "task").glob("*.yaml"))
TASKS: list[Task] = [*(build(yaml.safe_load(path.read_text())) for path in FILES), NewTask()]
SMALL = [PlanarReach(horizon=30), PlanarPush(horizon=40), ValveTurn(horizon=40)]


def proposer(task: Task, seed: int = 0, fresh: float = 0.25) -> TermsProposer:
    return TermsConfig(fresh=fresh).build(task, seed=seed, accounting=Accounting())


def sources(task: Task, request: Request, seed: int = 0, fresh: float = 0.25) -> list[str]:
    (answers,) = proposer(task, seed, fresh).propose(request)
    assert [a.sample for a in answers] == list(request.samples)
    return [extract_reward(a.text or "") for a in answers]


def first(task: Task, samples: int = 8, seed: int = 0) -> list[str]:
    return sources(task, Request(1, tuple(range(samples)), 0, ()), seed)


def allowed(source: str, task: Task) -> bool:
    return check_source(source, [field.name for field in task.fields]) == []


def parent_of(source: str, task: Task, **curves: tuple[float, ...]) -> Parent:
    recipe = read(source, task.fields)
    names = component_names(recipe) if recipe is not None else {}
    steady = dict.fromkeys(names, (0.1, 0.2, 0.4))
    return Parent("i1_s00", source, 0.4, {"fitness": (0.0, 0.2, 0.4), **steady, **curves})


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_the_first_answers_differ_in_structure(task):
    written = first(task)
    recipes = [read(source, task.fields) for source in written]
    kinds = {
        tuple((term.kind, term.fields, term.gate is None) for term in recipe.terms)
        for recipe in recipes
        if recipe is not None
    }
    assert len(kinds) == 8
    assert all(allowed(source, task) for source in written)
    assert task.name not in "".join(written)


@pytest.mark.parametrize(
    ("task", "pair"),
    [
        (PlanarReach(), ("tip_position", "target_position")),
        (PlanarPush(), ("puck_position", "target_position")),
        (ValveTurn(), ("valve_angle", "target_angle")),
        (FetchReach(), ("gripper_position", "target_position")),
        (FetchPush(), ("object_position", "target_position")),
        (NewTask(), ("block_position", "mark_position")),
    ],
)
def test_what_should_get_where_is_found_in_the_declaration(task, pair):
    assert [(a.name, b.name) for a, b in find_roles(task.fields).pairs] == [pair]


def test_what_touches_what_is_found_too():
    def approaches(task: Task) -> list[tuple[str, str]]:
        return [(a.name, b.name) for a, b in find_roles(task.fields).approaches]

    assert approaches(PlanarReach()) == []
    assert approaches(PlanarPush()) == [("pusher_position", "puck_position")]
    assert approaches(ValveTurn()) == [("finger_position", "spoke_tips")]
    assert approaches(FetchPickAndPlace()) == [("gripper_position", "object_position")]
    assert [f.name for f in find_roles(FetchPickAndPlace().fields).grips] == ["finger_opening"]


def test_what_is_left_to_the_target_is_an_error_and_hands_are_not_touched():
    roles = find_roles(HandBlock().fields)
    assert [f.name for f in roles.errors] == ["turn_left"] and roles.pairs == ()
    approaches = [(a.name, b.name) for a, b in roles.approaches]
    assert ("palm_position", "block_position") in approaches
    assert ("palm_position", "fingertip_positions") not in approaches


def test_without_a_goal_there_are_amounts_to_change():
    task = AdroitDoor()
    assert [f.name for f in find_roles(task.fields).amounts] == ["latch_angle", "door_angle"]
    assert any("state.door_angle" in source for source in first(task))


@settings(max_examples=40)
@given(
    task=st.sampled_from(TASKS),
    seed=st.integers(0, 10**9),
    iteration=st.integers(2, 5),
    sample=st.integers(0, 63),
    attempt=st.integers(0, 2),
    curves=st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3).map(tuple),
)
def test_every_change_of_every_answer_is_allowed_and_repeatable(
    task, seed, iteration, sample, attempt, curves
):
    source = first(task, 1, seed)[0]
    for step in range(3):
        name = next(iter(component_names(read(source, task.fields))))
        parent = parent_of(source, task, **{name: curves})
        request = Request(iteration + step, (sample,), attempt, (), parent)
        (changed,) = sources(task, request, seed)
        assert allowed(changed, task) and changed != source
        assert read(changed, task.fields) is not None
        assert sources(task, request, seed) == [changed]
        source = changed


@pytest.mark.parametrize("task", SMALL, ids=lambda task: task.name)
def test_composed_rewards_pass_all_checks(task):
    episodes = record_episodes(task)
    for index in (2, 3, 5):
        source = first(task)[index]
        report = check_reward(source, task, components="sum", episodes=episodes)
        assert report.accepted, [finding.text for finding in report.findings]


def test_a_component_that_was_never_met_is_widened_replaced_or_dropped():
    task = PlanarPush()
    source = first(task, 2)[1]  # distance, bonus, a peak around the puck, effort
    recipe = read(source, task.fields)
    position = [term.kind for term in recipe.terms].index("reached")
    name, bonus = list(component_names(recipe).items())[position]
    parent = parent_of(source, task, **{name: (0.0, 0.0, 0.0)})
    changed = sources(task, Request(2, tuple(range(40)), 0, (), parent), fresh=0.0)
    kept = sum(bonus in read(other, task.fields).terms for other in changed)
    healthy = sources(task, Request(2, tuple(range(40)), 0, (), parent_of(source, task)), fresh=0.0)
    assert kept < 22 < sum(bonus in read(other, task.fields).terms for other in healthy)


def test_a_dominating_component_gets_a_smaller_weight():
    task = PlanarPush()
    source = first(task, 1)[0]
    recipe = read(source, task.fields)
    name = next(iter(component_names(recipe)))
    parent = parent_of(source, task, **{name: (50.0, 40.0, 60.0)})
    smaller = 0
    for other in sources(task, Request(2, tuple(range(40)), 0, (), parent), fresh=0.0):
        terms = read(other, task.fields).terms
        same = [
            t for t in terms if (t.kind, t.fields) == (recipe.terms[0].kind, recipe.terms[0].fields)
        ]
        smaller += bool(same) and same[0].weight < recipe.terms[0].weight
    assert smaller > 20


def test_a_share_of_the_answers_starts_anew():
    task = PlanarPush()
    parent = parent_of(first(task, 1)[0], task)
    request = Request(2, tuple(range(30)), 0, (), parent)
    everything_new = sources(task, request, fresh=1.0)
    assert set(everything_new) == set(sources(task, Request(2, request.samples, 0, ())))
    shared = set(sources(task, request, fresh=0.5)) & set(everything_new)
    assert 5 < len(shared) < 25


GIVEN = """\
import numpy as np

SCALE = 2.0


def gap(state):
    return np.linalg.norm(state.tip_position - state.target_position)


def compute_reward(state):
    distance = gap(state)
    return -SCALE * distance, {"compute_reward": -SCALE * distance}
"""


def test_terms_are_added_to_a_reward_by_someone_else():
    task = SMALL[0]
    parent = Parent("init", GIVEN, 0.3, {"fitness": (0.1, 0.3), "distance": (-1.0, -0.5)})
    episodes = record_episodes(task)
    source = GIVEN
    for iteration in (2, 3, 4):
        request = Request(iteration, (0,), 0, (), parent)
        (source,) = sources(task, request, fresh=0.0)
        assert "SCALE = 2.0" in source and source.count("def gap") == 1
        assert read(source, task.fields).given.strip() == GIVEN.strip()
        report = check_reward(source, task, components="sum", episodes=episodes)
        assert report.accepted, [finding.text for finding in report.findings]
        parent = parent_of(source, task)


@pytest.mark.parametrize(
    "given_source",
    [
        "def compute_reward(state): import os",
        "def broken(",
        "",
        GIVEN + '\nTEXT = """\n```\n"""\n',
        "x = 1\n" * 3000 + GIVEN,
        "# Composed from terms by a seeded search; no language model wrote this.\n" + GIVEN,
    ],
)
def test_a_parent_that_cant_be_built_on_is_left(given_source):
    task = PlanarReach()
    parent = Parent("init", given_source, 0.3, {"fitness": (0.1, 0.3)})
    (source,) = sources(task, Request(2, (1,), 0, (), parent), fresh=0.0)
    assert allowed(source, task) and read(source, task.fields).given is None


NAMES = st.sampled_from(
    sorted(
        words("""
            hand_position goal_position target_angle arm_angle error_norm action speed_of_x lid_open
            tips_position cube_position cube_velocity goal_orientation
        """)
    )
)
ANY_FIELDS = st.lists(
    st.builds(
        Field,
        NAMES,
        st.sampled_from([(), (1,), (2,), (3,), (4,), (5, 3)]),
        st.sampled_from(["m", "rad", "-", "m/s", "N"]),
        st.sampled_from(["what it is", "where the cube should be", "how far it is open", ""]),
    ),
    min_size=1,
    max_size=7,
    unique_by=lambda field: field.name,
).map(tuple)


@settings(max_examples=40)
@given(fields=ANY_FIELDS, seed=st.integers(0, 99))
def test_any_declaration_gets_rewards_that_run(fields, seed):
    import numpy as np

    from embodied_icrl.manipulation.fields import StateLayout
    from embodied_icrl.reward_search.loading import load_reward

    class Declared(PlanarReach):
        pass

    Declared.fields = fields
    task = Declared()
    layout = StateLayout(fields)
    rng = np.random.default_rng(seed)
    state = layout.record(rng.normal(size=layout.size))
    for source in first(task, 12, seed):
        assert allowed(source, task)
        total, parts = load_reward(source)(state)
        assert np.isfinite(total) and total == pytest.approx(sum(parts.values()))
        assert all(np.ndim(value) == 0 and len(name) <= 40 for name, value in parts.items())


def test_it_never_calls_itself_a_language_model():
    terms = proposer(PlanarReach())
    assert terms.is_language_model is False and terms.model is None
    assert "no language model" in first(PlanarReach(), 1)[0]
    assert "no language model" in terms.expected_cost(Request(1, (0,), 0, ()), 3)


def test_a_share_is_a_share():
    with pytest.raises(ConfigError, match="between 0 and 1"):
        TermsConfig(fresh=1.5)
