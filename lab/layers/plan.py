"""The layers of a target that a draft uses, in a small JSON file that is found by the target's name."""

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
        kept: ascending layer numbers, from 0.
        calibration: as in `DraftConfig.calibration`.
        manifest: plain data on how the plan was found.
    """

    kept: tuple[int, ...]
    calibration: dict[str, float] = field(default_factory=dict)
    manifest: dict = field(default_factory=dict)

    @classmethod
    def every_second(cls, num_layers: int) -> "LayerPlan":
        """Return the plan for a target without a searched plan."""
        return cls(tuple(range(0, num_layers, 2)))

    @property
    def sha256(self) -> str:
        """Hash of layers and calibration."""
        return hashlib.sha256(json.dumps([self.kept, self.calibration], sort_keys=True).encode()).hexdigest()

    def save(self, path: Path) -> None:
        write_atomically(path, json.dumps(asdict(self)) + "\n")

    @classmethod
    def load(cls, path: Path, num_layers: int) -> "LayerPlan":
        """Read a file written by `save`, for a target with `num_layers` layers.

        Raises:
            ValueError: the file is not a plan, or names layers that the target does not have.
        """
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            plan = cls(tuple(values["kept"]), dict(values["calibration"]), dict(values["manifest"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is not a layer plan ({error}); run lab.training.skip_search again.") from error
        if not plan.kept or not is_ascending(plan.kept, 0) or plan.kept[-1] >= num_layers:
            raise ValueError(
                f"{path} has layers {list(plan.kept)}, but the target has 0 to {num_layers - 1}; run the search again."
            )
        return plan


def plan_path(target_name: str) -> Path:
    """Return the path of a target's plan in the user's cache."""
    return own_path("layers", target_name, ".json")


def find_plan(target_name: str) -> Path | None:
    """Return the plan that was searched for a target: the user's, else the shipped one, else None."""
    return own_or_ours(plan_path(target_name))
