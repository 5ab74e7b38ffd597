"""A tiny run as a process of its own: `python run_tiny.py FOLDER --max-steps 8 …`."""

import argparse
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from jakiro.training.schedule import TrainingOptions
from jakiro.training.trainer import Trainer
from tests.training.tiny import start, tiny_cache, tiny_head, tiny_target

OPTIONS = {"batch_tokens": 64, "warmup_steps": 3, "frequent_rows": 8, "sampled_rows": 8, "checkpoint_minutes": 1e-9}


def trainer(folder: Path, **options) -> Trainer:
    target = tiny_target()
    cache = tiny_cache(folder / "features", target)
    head = tiny_head(target, draft_vocab=30)
    start(head, cache)
    return Trainer(head, cache, TrainingOptions(**OPTIONS, **options), folder / "head", folder / "state")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--max-steps", type=int)
    parser.add_argument("--die-at", type=int, help="Kill this process with SIGKILL after so many steps.")
    parser.add_argument("--resume", action="store_true")
    arguments = parser.parse_args()
    subject = trainer(arguments.folder, max_steps=arguments.max_steps, num_validation=4)
    if arguments.die_at:
        subject._report_step = lambda parts: subject.step == arguments.die_at and os.kill(os.getpid(), signal.SIGKILL)
    if arguments.resume:
        subject.resume()
        sys.stdout.write(f"resumed at {subject.step}\n")
    subject.run()
    sys.stdout.write(f"ended at {subject.step}\n")


if __name__ == "__main__":
    main()
