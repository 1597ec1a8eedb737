"""Optional copies of a run's metrics to TensorBoard and Weights & Biases."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path

from genenv.config.sections import Config
from genenv.contracts.errors import MissingExtraError
from genenv.contracts.types import Json

Tracker = Callable[[int, Mapping[str, float]], None]


def flat(metrics: Mapping[str, Json], prefix: str = "") -> dict[str, float]:
    """Numbers of a nested record under dotted names; everything else is left out."""
    numbers: dict[str, float] = {}
    for key, value in metrics.items():
        if isinstance(value, Mapping):
            numbers |= flat(value, f"{prefix}{key}.")
        elif isinstance(value, (int, float)):
            numbers[prefix + key] = float(value)
    return numbers


def require_trackers(config: Config) -> None:
    """Raises MissingExtraError, before anything is made, if one that the configuration asks for is not installed."""
    wanted = [("tensorboard", config.log.tensorboard, "log.tensorboard = true")]
    wanted.append(("wandb", config.log.wandb is not None, "log.wandb"))
    for package, wish, key in wanted:
        if wish and importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, package, key)


def open_trackers(config: Config, folder: Path) -> list[Tracker]:
    """Those that the configuration asks for."""
    trackers: list[Tracker] = []
    if config.log.tensorboard:
        from torch.utils.tensorboard.writer import SummaryWriter

        writer = SummaryWriter(str(folder / "tensorboard"))

        def to_tensorboard(step: int, numbers: Mapping[str, float]) -> None:
            for name, value in numbers.items():
                writer.add_scalar(name.replace(".", "/"), value, step)
            writer.flush()

        trackers.append(to_tensorboard)
    if config.log.wandb is not None:
        import wandb

        run = wandb.init(project=config.log.wandb, dir=folder, config=config.model_dump(mode="json"), resume="allow")

        def to_wandb(step: int, numbers: Mapping[str, float]) -> None:
            run.log(dict(numbers), step=step)

        trackers.append(to_wandb)
    return trackers
