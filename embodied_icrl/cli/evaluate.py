"""`embodied-icrl evaluate`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from embodied_icrl.common.config import build, option
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.evaluation.in_context import (
    EvaluationConfig,
    EvaluationResult,
    References,
    evaluate_in_context,
)
from embodied_icrl.evaluation.loading import TrainedPolicy, load_trained
from embodied_icrl.evaluation.report import (
    combined_summary,
    default_name,
    output_folder,
    write_report,
)

CONTROLS = ("full", "cleared", "shuffled")


@dataclass(frozen=True)
class EvaluateConfig:
    """The keys of `sim_configs/evaluate.yaml` that are not those of `EvaluationConfig`."""

    run: str = option(doc="run directory")
    checkpoint: str | int = option("latest", "latest, N or step_N")
    context: Literal["full", "cleared", "shuffled", "all"] = option("full", "the agent's memory")
    output: str | None = option(None, "JSON file")
    encoder_weights: dict[str, str] | None = option(
        None,
        "files of frozen encoders' weights by observation key, like {head: vc1.pt}; null: where "
        "they were in training",
    )
    device: str = option("cpu", "cpu, cuda or auto")
    threads: int = option(1, "torch CPU threads; 0: torch's default")
    progress: bool = option(True, "a progress bar, if the output is a terminal")
    debug: bool = option(False, "full tracebacks for usage errors")


def run_evaluate(node: Any) -> None:
    """Evaluate a run's policy in context, write the report, print what matters of it."""
    command, rest, env = split_config(node, EvaluateConfig)
    settings = build({**rest, "context": "full"}, EvaluationConfig)
    set_threads(command.threads)
    trained = load_trained(
        command.run, command.checkpoint, command.device, env, command.encoder_weights
    )
    length = with_episodes(settings, trained)
    contexts = CONTROLS if command.context == "all" else (command.context,)
    results = evaluate_contexts(trained, length, contexts, progress=command.progress)
    output = command.output or default_output(trained, settings, command.context, env_name(env))
    paths = write_report(results, Path(output))
    print_report(combined_summary(results), paths)


def split_config(node: Any, cls: type[Any]) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """A command's own keys as its config, the others as plain data, and those of ``env``."""
    from omegaconf import OmegaConf

    plain = OmegaConf.to_container(node, resolve=True, throw_on_missing=False)
    assert isinstance(plain, dict)
    own = {field.name for field in dataclasses.fields(cls)}
    env = plain.pop("env", None) or {}
    rest = {str(key): value for key, value in plain.items() if key not in own}
    return build({key: plain[key] for key in own & plain.keys()}, cls), rest, env


def set_threads(threads: int) -> None:
    """How many CPU threads torch uses: one is fastest for small policies."""
    import torch

    if threads:
        torch.set_num_threads(threads)


def with_episodes(settings: EvaluationConfig, trained: TrainedPolicy) -> EvaluationConfig:
    """The experiment's own number of episodes, where the command gives none."""
    if settings.n_episodes is None and settings.n_steps is None and trained.n_episodes is not None:
        return dataclasses.replace(settings, n_episodes=trained.n_episodes)
    return settings


def evaluate_contexts(
    trained: TrainedPolicy,
    settings: EvaluationConfig,
    contexts: Sequence[str],
    *,
    progress: bool = False,
) -> list[EvaluationResult]:
    """One result per kind of memory, on the same tasks; the references are measured once."""
    references: References | None = None
    results = []
    for context in contexts:
        result = evaluate_in_context(
            trained.policy,
            trained.env_config,
            dataclasses.replace(settings, context=context),  # type: ignore[arg-type]
            references=references,
            trained_steps=trained.trained_steps,
            labels={"experiment": trained.experiment, "checkpoint": trained.checkpoint},
            progress=progress,
        )
        references = result.references
        results.append(result)
    return results


def default_output(
    trained: TrainedPolicy, settings: EvaluationConfig, context: str, env: str
) -> Path:
    """Where a report goes that was given no name: one that other settings don't have."""
    everything = context == "all"
    context = "full" if everything else context
    name = default_name(
        trained.checkpoint,
        dataclasses.replace(settings, context=context),  # type: ignore[arg-type]
        everything=everything,
        extra=env,
    )
    return output_folder(trained.run, "evaluation") / f"{name}.json"


def env_name(overrides: Mapping[str, Any]) -> str:
    """Changes to the environment as a part of a file name."""
    parts = []
    for key, value in overrides.items():
        if key == "_target_":
            value = str(value).rsplit(".", 1)[-1].removesuffix("Config")
        text = f"{key.strip('_')}_{value}"
        parts.append("".join(c if c.isalnum() or c in "._" else "_" for c in text))
    return "-".join(parts)[:120]


def print_report(report: Mapping[str, Any], paths: Sequence[Path]) -> None:
    """A table of first and last thirds, and where the files are."""
    console = Console()
    title = f"{report['experiment']} {report['checkpoint']}, {report['split']} tasks"
    table = Table(title=title, box=box.SIMPLE, padding=(0, 1, 0, 0), title_justify="left")
    table.add_column("memory")
    table.add_column("metric")
    names = [name for name in report["references"] if name != "oracle"] + ["oracle"]
    for column in ("first third", "last third", *names):
        table.add_column(column, justify="right", no_wrap=True)
    controls: Mapping[str, Any] = report.get("controls", {})
    for context, part in {report["context"]: report, **controls}.items():
        for metric in report["metrics"]:
            references = [(report["references"][name] or {}).get(metric) for name in names]
            thirds = [part[third].get(metric) for third in ("first_third", "last_third")]
            cells = [_interval(third) for third in thirds]
            row = (context, metric, *cells, *map(_number, references))
            table.add_row(*map(escape, row))
    # A table that is cut would lose numbers; a narrow terminal folds the lines instead.
    whole = console.measure(table, options=console.options.update(max_width=1000)).maximum
    console.width = max(console.width, whole)
    console.print(table)
    console.print("first and last third of a trial's episodes: mean and 95% interval")
    if report["longer_than_training"]:
        console.print(
            f"longer than in training: {report['trial_steps']} tokens per trial, "
            f"{report['trained_steps']} there"
        )
    if report["privileged"]:
        console.print("privileged: the policy reads a shaped reward, which no robot has")
    for path in paths:
        print(path)


def _interval(third: Mapping[str, Any] | None) -> str:
    if third is None or third["mean"] is None:
        return "-"
    return f"{third['mean']:.3g} [{third['low']:.3g}, {third['high']:.3g}]"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def check_positive(name: str, value: int) -> None:
    """Refuses numbers below 1."""
    if value < 1:
        raise ConfigError(f"{name}={value} must be at least 1")
