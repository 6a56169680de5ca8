"""`embodied-icrl video`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embodied_icrl.cli.evaluate import check_positive, env_name, set_threads, split_config
from embodied_icrl.common.config import build, option
from embodied_icrl.common.errors import ConfigError
from embodied_icrl.evaluation.loading import TrainedPolicy, load_trained
from embodied_icrl.evaluation.report import output_folder
from embodied_icrl.evaluation.video import VideoConfig, record_trial


@dataclass(frozen=True)
class VideoCommandConfig:
    """The keys of `sim_configs/video.yaml` that are not those of `VideoConfig`."""

    run: str | None = option(None, "run directory")
    checkpoint: str | int = option("latest", "latest, N or step_N")
    n_trials: int = option(1, "trials to film")
    n_episodes: int | None = option(None, "episodes per trial; null: as the experiment, else 10")
    output: str | None = option(None, "MP4 file")
    encoder_weights: dict[str, str] | None = option(
        None,
        "files of frozen encoders' weights by observation key, like {head: vc1.pt}; null: where "
        "they were in training",
    )
    device: str = option("cpu", "cpu, cuda or auto")
    threads: int = option(1, "torch CPU threads; 0: torch's default")
    debug: bool = option(False, "full tracebacks for usage errors")


def run_video(node: Any) -> None:
    """Film trials, one MP4 each, and print where they are."""
    command, rest, env = split_config(node, VideoCommandConfig)
    check_positive("n_trials", command.n_trials)
    set_threads(command.threads)
    trained = None
    if command.run is not None:
        trained = load_trained(
            command.run, command.checkpoint, command.device, env, command.encoder_weights
        )
    if command.n_episodes is not None:
        rest["n_episodes"] = command.n_episodes
    elif trained is not None and trained.n_episodes is not None:
        rest["n_episodes"] = trained.n_episodes
    config = build(rest, VideoConfig)
    env_config = trained.env_config if trained else _env_config(env)
    title = f"{trained.experiment}, {trained.checkpoint}" if trained else ""
    notes: set[str] = set()
    for trial in range(config.trial, config.trial + command.n_trials):
        path = _path(command, config, trained, trial, env_name(env))
        of_trial = dataclasses.replace(config, trial=trial)
        policy = trained.policy if trained else None
        print(record_trial(policy, env_config, path, of_trial, title=title, say=notes.add))
    for note in sorted(notes):
        print(f"what the agent sees: {note}", file=sys.stderr)


def _env_config(env: Mapping[str, Any]) -> Any:
    if "_target_" not in env:
        raise ConfigError("nothing to film: give run=DIR, or an environment like env=darkroom")
    return build(env, path="env")


def _path(
    command: VideoCommandConfig,
    config: VideoConfig,
    trained: TrainedPolicy | None,
    trial: int,
    env: str,
) -> Path:
    """The MP4 of a trial: other settings have another name."""
    if command.output is not None:
        path = Path(command.output)
        several = command.n_trials > 1
        return path.with_stem(f"{path.stem}-trial_{trial}") if several else path
    parts = [trained.checkpoint if trained else "", config.split, f"trial_{trial}"]
    parts += [config.agent if config.agent != "policy" else ""]
    parts += [config.context if config.context != "full" else ""]
    parts += [f"{command.n_episodes}_episodes" if command.n_episodes is not None else ""]
    parts += [f"{config.n_demos}_demos" if config.n_demos else ""]
    parts += ["deterministic" if config.deterministic else ""]
    parts += [f"seed_{config.seed}" if config.seed else ""]
    parts += ["attention" if config.attention else "", env]
    folder = output_folder(trained.run, "videos") if trained else Path.cwd()
    return folder / f"{'-'.join(part for part in parts if part)}.mp4"
