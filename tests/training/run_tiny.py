"""Tiny runs as a process of their own: `python run_tiny.py FOLDER --max-steps 8 …`; also under `accelerate launch`."""

import argparse
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from accelerate import PartialState

from jakiro.heads.kinds import KINDS, make_head
from jakiro.methods import DEFAULT, METHODS
from jakiro.training.features import FeatureCache
from jakiro.training.schedule import TrainingOptions
from jakiro.training.start import head_config
from jakiro.training.trainer import Trainer
from tests.training.tiny import start, tiny_cache, tiny_head, tiny_target

OPTIONS = {"batch_tokens": 64, "warmup_steps": 3, "frequent_rows": 8, "sampled_rows": 8, "checkpoint_minutes": 1e-9}


def trainer(folder: Path, **options) -> Trainer:
    target = tiny_target()
    with PartialState(cpu=True).main_process_first():
        cache = FeatureCache(tiny_cache(folder / "features", target).folder)
    head = tiny_head(target, draft_vocab=30)
    start(head, cache, how="identity")
    return Trainer(head, cache, TrainingOptions(**OPTIONS, **options), folder / "head", folder / "state")


def train_every_kind(folder: Path) -> None:
    """Two steps of the head of each method, the second of which needs a gradient of everything from the first."""
    target = tiny_target()
    with PartialState(cpu=True).main_process_first():
        cache = tiny_cache(folder / "features", target)
    embedding, output = target.get_input_embeddings().weight, target.lm_head.weight
    trained = [method for method in METHODS.values() if method.trains is not None]
    shapes = {method.name: (method.needs.head[0], method.trains) for method in trained}
    shapes |= {"decoupled": (DEFAULT.needs.head[0], {"fusion": "decoupled"})}
    for name, (kind, shape) in shapes.items():
        head = make_head(head_config(KINDS[kind], target.config, 12, **shape)).bind(embedding, output)
        start(head, cache, how="identity")
        options = OPTIONS | {"checkpoint_minutes": 1e9, "unroll_from": 0.5}
        Trainer(head, cache, TrainingOptions(max_steps=3, num_validation=4, **options), folder / "head").run()
        say(f"trained {name}")


def say(what: str) -> None:
    sys.stdout.write(f"process {PartialState().process_index} {what}\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--max-steps", type=int)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--die-at", type=int, help="Kill this process with SIGKILL after so many steps.")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--time-budget", type=float, help="Then another run of so many minutes.")
    parser.add_argument("--every-kind", action="store_true", help="Then a few steps of every kind of head.")
    arguments = parser.parse_args()
    subject = trainer(
        arguments.folder, max_steps=arguments.max_steps, accumulate=arguments.accumulate, num_validation=4
    )
    if arguments.die_at:
        subject._report_step = lambda parts: subject.step == arguments.die_at and os.kill(os.getpid(), signal.SIGKILL)
    if arguments.resume:
        subject.resume()
        say(f"resumed at {subject.step}")
    subject.run()
    say(f"ended at {subject.step}")
    if arguments.time_budget:
        # With nine rows held out, the batches of an epoch do not divide evenly among two processes.
        timed = trainer(arguments.folder / "timed", time_budget=arguments.time_budget, num_validation=9)
        clock = timed.clock
        # Other processes' clocks run far ahead and must not matter.
        timed.clock = lambda: clock() * (1 if PartialState().is_main_process else 1000)
        timed.run()
        say(f"ended its time at {timed.step}")
    if arguments.every_kind:
        train_every_kind(arguments.folder / "every kind")


if __name__ == "__main__":
    main()
