"""What a language model is told: the rules, the task as declared, and what was learned so far.

Names, reasons and code that came from candidates are untrusted: they are cut, put on one line or
fenced, so that they stay quotations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from embodied_icrl.common.config import option
from embodied_icrl.manipulation.task import Task
from embodied_icrl.reward_search.extract import MAIN, MAX_SOURCE
from embodied_icrl.reward_search.facade import BUILTIN_NAMES, MATH_NAMES, NUMPY_NAMES
from embodied_icrl.reward_search.findings import printable
from embodied_icrl.reward_search.prompt_source import environment_source
from embodied_icrl.reward_search.records import INIT, Candidate, Message, Parent
from embodied_icrl.reward_search.reflection import number, reflect

MAX_FEEDBACK = 4_000  # characters
MAX_FAILURES = 6  # reasons shown
MAX_REASON = 300


@dataclass(frozen=True)
class PromptConfig:
    """What else than the declaration is shown."""

    show_source: bool = option(
        False, "show how the environment is built and read (never how success is measured)"
    )


SYSTEM = f"""\
You write reward functions in Python. Each one trains a reinforcement learning agent on a robot \
manipulation task, and is judged by how well the trained agent does the task, measured apart from \
the reward.

Answer with one Python code block that defines

    def {MAIN}(state):
        ...
        return total, components

`state` has one attribute per field of the task, after a step: numbers are floats, the rest are \
read-only NumPy arrays. `total` is the reward of the step, a finite float. `components` is a dict \
from short names (letters, digits, underscores) to the floats that make up the total; return the \
same names in every state. You are shown how each component went, so give every idea its own.

The code may hold helper functions and constants beside {MAIN}. It is refused if it
- imports anything but numpy and math, or uses a function that is not listed below;
- has while loops, try, raise, classes, decorators, global state, recursion, or writes to `state`;
- keeps anything from one call to the next: the reward is a function of the state alone;
- takes longer than a fraction of a millisecond.

np: {" ".join(sorted(NUMPY_NAMES))}
math: {" ".join(sorted(MATH_NAMES))}
builtins: {" ".join(sorted(BUILTIN_NAMES))}
"""

HINTS = """\
What tends to help:
- An agent starts from random motion. Something in the reward must already change then: the \
distance to the first thing that has to be touched, before the distance to the goal.
- A squashed distance, like np.exp(-distance / temperature), needs a temperature near the \
distances that occur. Make temperatures and weights named constants at the top.
- Keep components within one or two orders of magnitude of each other, and small costs small.
- A bonus for being at the goal should be worth more than staying close to it.
- An agent finds every gap: ask what it would do that scores well without doing the task."""


def build_messages(
    task: Task,
    config: PromptConfig,
    *,
    parent: Parent | None = None,
    failures: Sequence[Candidate] = (),
    feedback: str | None = None,
) -> tuple[Message, ...]:
    """The conversation for one request. Equal arguments give equal text, down to three digits.

    Args:
        parent: the best reward so far, or the one that the search begins from.
        failures: candidates to learn from; those that were not refused and did not fail are
            passed over.
        feedback: a person's words.
    """
    parts = [_task_part(task, config)]
    if parent is not None:
        parts.append(_parent_part(parent))
    if any(_is_failure(candidate) for candidate in failures):
        parts.append(_failure_part(failures))
    if feedback and feedback.strip():
        parts.append(_feedback_part(feedback))
    parts.append(_order(parent))
    return (
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "\n\n".join(parts)},
    )


def _task_part(task: Task, config: PromptConfig) -> str:
    lines = [
        f"The task: {task.description}",
        f"An episode has at most {task.horizon} steps. The fields of `state`:",
        *(
            f"- state.{field.name}: {_shape_text(field.shape)}, unit {field.unit}: {field.meaning}"
            for field in task.fields
        ),
    ]
    if config.show_source:
        source = environment_source(task)
        lines += ["", "How the environment is made and read:", fenced(source)]
    return "\n".join(lines)


def _shape_text(shape: tuple[int, ...]) -> str:
    return f"array of shape {shape}" if shape else "a number"


def _parent_part(parent: Parent) -> str:
    if parent.candidate == INIT:
        title = "The reward to begin from, written by a person:"
    else:
        title = "The best reward so far:"
    text = f"{title}\n{fenced(parent.source[:MAX_SOURCE])}"
    reflection = reflect(parent.curves)
    if not parent.curves:
        return text
    return (
        f"{text}\nAgents trained with it reach a fitness of {number(parent.fitness)}. Along "
        f"training, as means per step from the first measurement to the last:\n{reflection.text}"
    )


def _is_failure(candidate: Candidate) -> bool:
    return candidate.status in ("refused", "failed")


def _failure_part(failures: Sequence[Candidate]) -> str:
    """The reasons, the most frequent first, each with the line of code that it names."""
    reasons: dict[str, list[Candidate]] = {}
    for candidate in filter(_is_failure, failures):
        reason = printable(candidate.reason or "no reason known", MAX_REASON)
        reasons.setdefault(reason, []).append(candidate)
    ordered = sorted(reasons.items(), key=lambda item: -len(item[1]))
    lines = ["Answers like yours that could not be used, so that you don't repeat them:"]
    for reason, candidates in ordered[:MAX_FAILURES]:
        times = f" ({len(candidates)} times)" if len(candidates) > 1 else ""
        kind = "refused" if candidates[0].status == "refused" else "failed in training"
        lines.append(f"- {kind}{times}: {reason}")
        code = _line_named(reason, candidates[0].source)
        if code:
            lines.append(f"  the line was: {code}")
    if len(ordered) > MAX_FAILURES:
        lines.append(f"- and {len(ordered) - MAX_FAILURES} other reasons")
    return "\n".join(lines)


def _line_named(reason: str, source: str | None) -> str:
    match = re.search(r"\bline (\d{1,6})\b", reason)
    lines = (source or "").splitlines()
    if match is None or not 1 <= int(match.group(1)) <= len(lines):
        return ""
    return printable(lines[int(match.group(1)) - 1], 120)


def _feedback_part(feedback: str) -> str:
    text = "".join(c for c in feedback.strip() if c.isprintable() or c == "\n")
    if len(text) > MAX_FEEDBACK:
        text = text[:MAX_FEEDBACK] + " [cut]"
    return f"A person watched the agents and says:\n{fenced(text, '')}"


def _order(parent: Parent | None) -> str:
    if parent is None:
        return f"{HINTS}\n\nWrite the reward function."
    return (
        f"{HINTS}\n\nWrite a better reward function. Say in a sentence or two what the numbers "
        "above tell you: which components were learned, which stayed flat, which drown the others, "
        "and what the agent still lacks. Then give the whole code, not only what changes."
    )


def fenced(text: str, language: str = "python") -> str:
    """A code block that the text can't end."""
    longest = max((len(run) for run in _runs(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _runs(text: str) -> Iterator[str]:
    yield from re.findall(r"`+", text)
