"""A tiny training as a process of its own, also under `accelerate launch`: `python run_tiny.py FOLDER`."""

import argparse
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from jakiro.drafters.registry import METHODS
from jakiro.heads.kinds import KINDS, make_head
from jakiro.system import errors_as_one_sentence
from jakiro.training.features import FeatureCache
from jakiro.training.schedule import TrainingOptions
from jakiro.training.start import head_config
from jakiro.training.trainer import Trainer, TrainingFolders, join_processes
from tests.training.test_trainer import OPTIONS
from tests.training.tiny import start, tiny_cache, tiny_head, tiny_target


def trainer(folder: Path, options: TrainingOptions) -> Trainer:
    """Return the trainer of a run in this folder; the main process writes the features."""
    target = tiny_target()
    with join_processes("cpu").main_process_first():
        cache = FeatureCache(tiny_cache(folder / "features", target).folder)
    head = tiny_head(target, draft_vocab=30)
    start(head, cache)
    return Trainer(head, cache, options, TrainingFolders(folder / "head", folder / "state"))


def train_every_kind(folder: Path) -> None:
    """Train heads of all kinds for three steps, the last one unrolled; each process waits for every gradient."""
    process, target = join_processes("cpu"), tiny_target()
    with process.main_process_first():
        cache = tiny_cache(folder / "features", target)
    tables = target.get_input_embeddings().weight, target.lm_head.weight
    shapes = [(method.needs.head[0], method.trains) for method in METHODS.values() if method.trains is not None]
    for kind, shape in [*shapes, ("jakiro", {"fusion": "decoupled"})]:
        head = make_head(head_config(KINDS[kind], target.config, 12, **shape)).bind(*tables)
        start(head, cache)
        options = TrainingOptions(max_steps=3, **OPTIONS | {"unroll_from": 0.5})
        subject = Trainer(head, cache, options, TrainingFolders(folder / "head"))
        subject._run()
        sys.stdout.write(f"process {process.process_index} trained {kind} {subject.step}\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--max-steps", type=int, default=8)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--die-at", type=int, help="The last process kills itself after so many steps.")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--every-kind", action="store_true")
    arguments = parser.parse_args()
    if arguments.every_kind:
        train_every_kind(arguments.folder)
        return
    options = TrainingOptions(max_steps=arguments.max_steps, accumulate=arguments.accumulate, **OPTIONS)
    if arguments.die_at:
        options = replace(options, checkpoint_minutes=1e-9)
    subject = trainer(arguments.folder, options)
    processes = subject.accelerator
    if arguments.resume:
        subject.resume()
        sys.stdout.write(f"process {processes.process_index} resumed at {subject.step}\n")
    if arguments.die_at and processes.process_index == processes.num_processes - 1:
        subject._update_average = lambda: subject.step == arguments.die_at and os.kill(os.getpid(), signal.SIGKILL)
    subject.run()
    sys.stdout.write(f"process {processes.process_index} ended at {subject.step}\n")


if __name__ == "__main__":
    with errors_as_one_sentence():
        main()
