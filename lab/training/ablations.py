"""Ablations: training with one option changed, at equal steps and tokens; `evaluate` measures each head.

    python -m lab.training.ablations CORPUS OUT --max-steps 150 --max-tokens 120000

Every variant has its own folder under OUT; a finished one is not repeated, a stopped one is resumed. Variants with the
same text share one folder of features, and all share one folder of written answers.
"""

import json
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated

from jakiro.cli.loading import set_up
from jakiro.cli.options import CorpusPaths, Prompts, Target, Threads, argument, option
from jakiro.config import require
from jakiro.drafters.eagle2 import METHOD as DENSE
from jakiro.system import comma_list, write_atomically
from jakiro.training.evaluate import EvaluateConfig, evaluate
from jakiro.training.losses import LossWeights
from jakiro.training.schedule import TrainingOptions
from jakiro.training.train import TrainConfig, train
from jakiro.training.trainer import complete_checkpoints
from lab.commands import run
from lab.figures import markdown

BASE = "base"
NUMBERS_NAME, TABLE_NAME = "tau.json", "ablations.md"
ALL_ROWS = 10**9
SHARES_OF_TEXT = {"half of the text": 1 / 2, "a quarter of the text": 1 / 4, "an eighth of the text": 1 / 8}


def variants(width: int, vocabulary: int, tokens: int | None) -> dict[str, dict]:
    """Return changed fields of `TrainConfig` and its options by variant; other fields are those of the base.

    Args:
        width: inner width of each of the base's two experts.
        vocabulary: the base's draft vocabulary.
        tokens: number of training tokens of the base, None for the whole corpus.
    """
    return {
        BASE: {"fusion": "summed", "expert_width": width, "draft_vocab": vocabulary},
        "official loss": {"weights": LossWeights(token=0.1, feature=1.0, contrastive=0.5)},
        "cross-entropy only": {"weights": LossWeights(feature=0.0)},
        "unroll 1": {"unroll": 1},
        "unroll 3": {"unroll": 3},
        "draft vocabulary 4096": {"draft_vocab": 4096},
        "draft vocabulary 8192": {"draft_vocab": 8192},
        "draft vocabulary all": {"draft_vocab": ALL_ROWS},
        "no noise": {"feature_noise": 0.0},
        "noise doubled": {"feature_noise": 0.5},
        "half the width": {"expert_width": width // 2},
        "double the width": {"expert_width": 2 * width},
        # A GELU expert has two matrices where a SwiGLU expert has three.
        "decoupled": {"fusion": "decoupled", "expert_width": width * 3 // 2},
        "one dense expert of equal parameters": {"method": DENSE.name, "fusion": None, "expert_width": 2 * width},
        **{name: {"max_tokens": int(share * tokens)} for name, share in SHARES_OF_TEXT.items() if tokens},
    }


def configured(**values) -> TrainConfig:
    """Return a config from its own fields and those of its options."""
    names = {field.name for field in fields(TrainingOptions)}
    options = TrainingOptions(**{name: value for name, value in values.items() if name in names})
    return TrainConfig(options=options, **{name: value for name, value in values.items() if name not in names})


def ablate(
    data: CorpusPaths,
    out: Annotated[Path, argument("Folder for heads, numbers and the table.")],
    names: Annotated[str | None, option("Comma list of variants; all if not given.", "--only")] = None,
    max_steps: Annotated[int, option("Optimizer steps of every variant.")] = 150,
    max_tokens: Annotated[int | None, option("Training tokens of every variant.")] = 120000,
    width: Annotated[int, option("Inner width of the base's experts.")] = 960,
    draft_vocab: Annotated[int, option("The base's draft vocabulary.")] = 16384,
    validation_rows: Annotated[int, option("Corpus rows held out, for calibration.")] = 40,
    prompts: Prompts = None,
    limit: Annotated[int | None, option("At most this many prompts.")] = 16,
    max_new_tokens: Annotated[int, option("Longest answer.")] = 64,
    nodes: Annotated[str, option("Comma list of node budgets.")] = "8,24",
    batch_tokens: Annotated[int, option("Tokens per batch.")] = 2048,
    seed: Annotated[int, option("Equal seeds give equal results; all variants share it.")] = 0,
    target: Target = None,
    threads: Threads = None,
) -> None:
    """Train every variant for the same steps on the same tokens, measure it and write a table."""
    set_up(threads)
    by_name = variants(width, draft_vocab, max_tokens)
    chosen = list(by_name) if names is None else comma_list("--only", names, str)
    for name in chosen:
        require(name in by_name, f"Unknown variant {name!r}; choose one of {', '.join(by_name)}.")
    shared = {"target": target, "seed": seed}
    measured = EvaluateConfig(
        **shared, prompts=prompts and str(prompts), limit=limit, max_new_tokens=max_new_tokens,
        nodes=tuple(comma_list("--nodes", nodes, int)), answers=str(out / "answers"),
    )  # fmt: skip
    learned = shared | {
        "corpora": tuple(map(str, data)), "max_steps": max_steps, "max_tokens": max_tokens,
        "num_validation": validation_rows, "batch_tokens": batch_tokens, "features": str(out / "features"),
        "final_report": False,
    }  # fmt: skip
    for name in chosen:
        folder = _folder(out, name)
        if not (folder / NUMBERS_NAME).is_file():
            folders = {"out": str(folder / "head"), "work": str(folder / "work")}
            options = learned | by_name[BASE] | by_name[name] | folders
            if "max_tokens" in by_name[name]:
                options["features"] = None
            train(configured(**options, resume=bool(complete_checkpoints(folder / "work" / "state"))))
            numbers = evaluate(replace(measured, head=str(folder / "head"))).to_json()
            write_atomically(folder / NUMBERS_NAME, numbers)
    (out / TABLE_NAME).write_text(table(out, list(by_name)), encoding="utf-8")


def _folder(out: Path, name: str) -> Path:
    return out / name.replace(" ", "-")


def table(out: Path, names: Sequence[str]) -> str:
    """Return the measured variants as a Markdown table, ordered by the overall τ of the largest tree."""
    taus_of = {}
    for name in names:
        path = _folder(out, name) / NUMBERS_NAME
        if path.is_file():
            numbers = json.loads(path.read_text(encoding="utf-8"))
            overall = [score for score in numbers["scores"] if score["category"] == "all"]
            taus_of[name] = {(score["temperature"], score["nodes"]): score["tau"] for score in overall}
    columns = sorted({column for taus in taus_of.values() for column in taus})
    rows = []
    for name, taus in sorted(taus_of.items(), key=lambda item: -(item[1].get(columns[-1]) or 0)):
        rows.append([name, *(f"{taus[column]:.2f}" if taus.get(column) else "–" for column in columns)])
    titles = [f"τ, T {temperature:g}, {nodes} nodes" for temperature, nodes in columns]
    return markdown(["variant", *titles], rows) + "\n"


if __name__ == "__main__":
    run(ablate)
