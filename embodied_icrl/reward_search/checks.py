"""Whether reward code may be used: the static layer, then the unit checks in the sandbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from embodied_icrl.manipulation.task import Task
from embodied_icrl.reward_search.findings import Finding, parse_finding
from embodied_icrl.reward_search.sandbox import Layers, Limits, run_sandboxed
from embodied_icrl.reward_search.static_check import check_source
from embodied_icrl.reward_search.transitions import record_episodes

MAX_FINDINGS = 20
Components = Literal["sum", "free"]
Episodes = Mapping[str, Sequence[Sequence[Sequence[float]]]]


@dataclass(frozen=True)
class CheckReport:
    """What the checks found.

    Attributes:
        findings: errors and warnings in the order of their lines.
        deterministic: False where a clock ended the check: another run may end otherwise.
    """

    findings: tuple[Finding, ...]
    deterministic: bool = True

    @property
    def accepted(self) -> bool:
        """Whether nothing but warnings was found."""
        return all(finding.severity == "warning" for finding in self.findings)


def check_reward(
    source: str,
    task: Task,
    *,
    components: Components = "free",
    episodes: Episodes | None = None,
    limits: Limits | None = None,
    layers: Layers | None = None,
) -> CheckReport:
    """Check reward code for a task. Nothing of it runs outside the sandbox.

    Args:
        components: "sum" if the components must add up to the total; "free" if they may also be
            gates or parts of one another, which then is a warning.
        episodes: what `record_episodes(task)` gives, to record once for many checks.
        limits, layers: of the sandbox; its defaults without.

    Raises:
        SandboxError: the sandbox could not be set up.
    """
    findings = check_source(source, [field.name for field in task.fields])
    if findings:
        return CheckReport(tuple(findings))
    payload = {
        "source": source,
        "fields": [[field.name, list(field.shape)] for field in task.fields],
        "episodes": episodes if episodes is not None else record_episodes(task),
        "components": components,
    }
    function = "embodied_icrl.reward_search.unit_checks:run_unit_checks"
    outcome = run_sandboxed(function, payload, limits=limits, layers=layers)
    if outcome.reason is not None:
        finding = Finding("process", 0, outcome.reason)
        return CheckReport((finding,), outcome.deterministic)
    return CheckReport(tuple(_parsed(outcome.result)))


def _parsed(result: Any) -> list[Finding]:
    """The findings in what a child reported, which may be anything."""
    try:
        items = result["findings"]
        if not isinstance(items, list) or len(items) > MAX_FINDINGS:
            raise ValueError("not a list of findings")
        return [parse_finding(item) for item in items]
    except (KeyError, TypeError, ValueError):
        return [Finding("process", 0, "the check's own process reported something else")]
