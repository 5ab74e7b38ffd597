"""Which of a target's layers a draft keeps, as a small JSON file: found by a search on text, looked up by name."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from jakiro.config import is_ascending
from jakiro.system import write_atomically
from lab.files import own_or_ours, own_path


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """The layers that a draft runs.

    Attributes:
        kept: numbers from 0, ascending.
        calibration: as in `DraftConfig.calibration`.
        manifest: how it was found, as plain data.
    """

    kept: tuple[int, ...]
    calibration: dict[str, float] = field(default_factory=dict)
    manifest: dict = field(default_factory=dict)

    @classmethod
    def every_second(cls, num_layers: int) -> "LayerPlan":
        """What is kept where nothing was searched."""
        return cls(tuple(range(0, num_layers, 2)))

    @property
    def sha256(self) -> str:
        """Equal for plans that draft alike."""
        return hashlib.sha256(json.dumps([self.kept, self.calibration], sort_keys=True).encode()).hexdigest()

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(asdict(self)) + "\n")

    @classmethod
    def load(cls, path: Path, num_layers: int) -> "LayerPlan":
        """Reads what `save` wrote, for a target of so many layers.

        Raises:
            ValueError: it is no such file, or names layers that the target does not have.
        """
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            plan = cls(tuple(values["kept"]), dict(values["calibration"]), dict(values["manifest"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is no plan of layers ({error}); search again.") from error
        if not plan.kept or not is_ascending(plan.kept, 0) or plan.kept[-1] >= num_layers:
            raise ValueError(
                f"{path} keeps layers {list(plan.kept)}, the target has 0 to {num_layers - 1}; search again."
            )
        return plan


def plan_path(target_name: str) -> Path:
    """Where a target's plan is kept in the user's cache."""
    return own_path("layers", target_name, ".json")


def find_plan(target_name: str) -> Path | None:
    """The plan that was searched for a target: the user's own, else the shipped one; None where there is none."""
    return own_or_ours(plan_path(target_name))
