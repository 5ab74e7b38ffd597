"""The training loop: steps, progress, checkpoints and exact resume; accelerate runs it in one or several processes."""

import json
import logging
import math
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

import torch
from accelerate import Accelerator, PartialState
from accelerate.data_loader import prepare_data_loader
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType, GradientAccumulationPlugin, ProjectConfiguration
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils.data import DataLoader

from jakiro.config import require
from jakiro.heads.base import DraftHead
from jakiro.heads.checkpoint import save_head
from jakiro.heads.kind import Kinds
from jakiro.heads.kinds import KINDS, kind_named
from jakiro.loading.loader import choose_device, gpu_computes_bfloat16
from jakiro.ops.linear import packs_bfloat16
from jakiro.system import file_sha256, is_out_of_memory, write_atomically
from jakiro.training.features import Batch, FeatureCache, epoch_batches
from jakiro.training.losses import Objective, draft_index, objective_for, sample_vocabulary
from jakiro.training.optimizer import muon_and_adamw
from jakiro.training.schedule import TrainingOptions, clock_named, learning_rate_at, unroll_steps_at

PROGRESS_NAME, AVERAGE_NAME = "progress.json", "average.safetensors"
# Checksums of the other files; written last, so a checkpoint with this file is complete
CHECKSUMS_NAME = "checksums.json"
ROUTER = "mlp_moe.gate.weight"
REPORT_STEPS = 20
AVERAGE_DECAY = 0.99
# Decoupled weight decay, and the largest norm of a gradient
WEIGHT_DECAY, CLIP_NORM = 1e-3, 1.0
WHITENING_TEXTS, NOISE_TEXTS = 100, 16
# Options that determine the order of the batches
FIXED_OPTIONS = ("seed", "batch_tokens", "num_validation")
# Other processes wait while the main process starts or evaluates a head; NCCL's default is ten minutes
PROCESS_TIMEOUT = timedelta(days=2)
log = logging.getLogger(__name__)


class TrainingStopped(Exception):
    """A training was interrupted after a checkpoint; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class TrainingFolders:
    """Folders that a training writes.

    Attributes:
        head: folder of the head.
        state: folder of the checkpoints for `Trainer.resume`; None writes none.
        log: folder for tensorboard; None writes no files for it.
    """

    head: Path
    state: Path | None = None
    log: Path | None = None


def join_processes(device: str | None) -> PartialState:
    """Return this process's place among the processes of `accelerate launch`.

    Args:
        device: as in `choose_device`.

    Raises:
        ValueError: the device does not exist, or `accelerate launch` uses another one.
    """
    chosen = choose_device(device)
    if not torch.distributed.is_initialized():
        # accelerate keeps the first settings of a process, but a program may train several heads
        AcceleratorState._reset_state(reset_partial_state=True)
    if chosen.index is not None:
        torch.cuda.set_device(chosen)
    state = PartialState(cpu=chosen.type == "cpu", timeout=PROCESS_TIMEOUT)
    require(
        device is None or state.device.type == chosen.type,
        f"--device is {device}, but accelerate launch uses {state.device.type}; change one of them.",
    )
    return state


def make_accelerator(device: torch.device, precision: str, accumulate: int, log_folder: Path | None) -> Accelerator:
    """Return an accelerator with these settings; those of `accelerate config` are not used.

    Raises:
        ValueError: `accelerate launch` would split the head among processes.
    """
    AcceleratorState._reset_state(reset_partial_state=not torch.distributed.is_initialized())
    accelerator = Accelerator(
        cpu=device.type == "cpu",
        mixed_precision="bf16" if precision == "bfloat16" else "no",
        gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=accumulate, sync_with_dataloader=False),
        dynamo_backend="no",
        log_with="tensorboard" if log_folder else None,
        project_config=ProjectConfiguration(logging_dir=str(log_folder)) if log_folder else None,
    )
    kind = accelerator.distributed_type
    require(
        kind in (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU),
        f"Each process trains a whole head, but accelerate is set to {kind.value}; start it with accelerate launch "
        "--multi_gpu.",
    )
    return accelerator


class Trainer:
    """Trains a bound head on a feature cache.

    Args:
        head: bound to its target; trained in place.
        cache: the target's features.
        options: how the head is trained.
        folders: where the head and the checkpoints are written.
        validate: called by the main process with the objective at every checkpoint; returns numbers to log.
        clock: returns seconds; None uses the clock that the options name.
        kinds: kinds of heads, see `Methods.kinds`.
        objective: the head's loss; None uses that of its kind.

    Attributes:
        step: number of optimizer steps.
        next_batch: number of batches of this epoch that are done, in all processes together.
        elapsed: seconds of training, including resumed parts.
    """

    def __init__(
        self,
        head: DraftHead,
        cache: FeatureCache,
        options: TrainingOptions,
        folders: TrainingFolders,
        validate: Callable[[Objective], dict[str, float]] | None = None,
        clock: Callable[[], float] | None = None,
        kinds: Kinds = KINDS,
        objective: Objective | None = None,
    ) -> None:
        self.head, self.cache, self.options, self.folders = head, cache, options, folders
        self.kind = kind_named(head.config.kind, kinds)
        self.validate, self.clock = validate, clock or clock_named(options.time_budget_clock)
        self.device = next(head.parameters()).device
        precision = options.precision
        if precision == "bfloat16" and self.device.type == "cuda" and not gpu_computes_bfloat16(self.device):
            # Not float16 either, in which small gradients become zero
            log.warning("This GPU does not compute bfloat16 in hardware; the head's passes run in float32.")
            precision = "float32"
        for name, parameter in head.named_parameters():
            # The router of a single expert has no gradient; other processes would wait for one
            if name.endswith(ROUTER) and len(parameter) == 1:
                parameter.requires_grad_(False)
        self.accelerator = make_accelerator(self.device, precision, options.accumulate, folders.log)
        self.objective = objective or objective_for(head, options.weights, kinds)
        self.prepared, *self.optimizers = self.accelerator.prepare(self.objective, *self._optimizers(precision))
        # Checkpoints hold plain objectives, so that another number of processes can resume
        plain = self.accelerator.unwrap_model(self.prepared)
        self.accelerator.register_save_state_pre_hook(lambda _, weights, __: weights.__setitem__(0, plain.state_dict()))
        self.accelerator.register_load_state_pre_hook(lambda models, _: models.__setitem__(0, plain))
        if folders.log:
            self.accelerator.init_trackers("")
        self.frequent, self.draft_index = self._vocabulary()
        texts = cache.texts(options.num_validation, NOISE_TEXTS)
        self.noise_width = options.feature_noise * float(torch.cat([features for _, features in texts]).std())
        self.step = self.epoch = self.next_batch = 0
        self.elapsed = 0.0
        self.window: list[dict[str, float]] = []
        self.average: dict[str, Tensor] = {}
        self._was_signalled = False
        self._num_saved: int | None = None

    @property
    def step_batches(self) -> int:
        """Number of batches that a step learns from, in all processes together."""
        return self.options.accumulate * self.accelerator.num_processes

    @property
    def progress(self) -> float:
        """Finished share of the schedule, 0 to 1."""
        if self.options.max_steps is not None:
            return self.step / self.options.max_steps
        return self.elapsed / (60 * self.options.time_budget)

    def whitening(self) -> dict[str, Tensor]:
        """Return whitening matrices by parameter name for Muon, from texts that are not held out."""
        texts = self.cache.texts(self.options.num_validation, WHITENING_TEXTS, self.device)
        return self.kind.whitening(self.head, texts)

    def _optimizers(self, precision: str) -> list[torch.optim.Optimizer]:
        routers = [name for name, _ in self.head.named_parameters() if name.endswith(ROUTER)]
        is_half = self.device.type == "cuda" or packs_bfloat16(self.device, torch.bfloat16)
        dtype = torch.bfloat16 if precision == "bfloat16" and is_half else torch.float32
        parameters, rate = self.head.named_parameters(), self.options.learning_rate
        return muon_and_adamw(parameters, rate, WEIGHT_DECAY, self.whitening(), routers, dtype)

    def _vocabulary(self) -> tuple[Tensor, Tensor]:
        """Return which draft tokens are frequent in the corpus, and the draft index of every target token or −1."""
        draft_ids, vocab_size = self.head.draft_token_ids, self.head.config.vocab_size
        ids = torch.from_numpy(self.cache.learned_ids(self.options.num_validation).astype("int64"))
        counts = torch.bincount(ids, minlength=vocab_size).to(draft_ids)
        frequent = torch.zeros_like(draft_ids, dtype=torch.bool)
        frequent[counts[draft_ids].argsort(descending=True)[: self.options.frequent_rows]] = True
        return frequent, draft_index(self.head)

    def run(self) -> None:
        """Train to the end of the schedule and save the head.

        Raises:
            ValueError: the loss is not finite, or another process of this training ended.
            TrainingStopped: SIGINT or SIGTERM was received; a checkpoint was written.
        """
        try:
            with self._stopping_by_signal():
                self._run()
        except RuntimeError as error:
            if self.accelerator.num_processes == 1 or is_out_of_memory(error):
                raise
            raise ValueError(
                f"Another process of this training ended in step {self.step + 1}; {self._how_to_resume()}"
            ) from error
        self.accelerator.end_training()

    def _run(self) -> None:
        last = self.clock()
        last_checkpoint = self.elapsed
        while self.progress < 1:
            batches = iter(self._remaining_batches())
            for first in batches:
                parts = self._train_on(first, batches)
                self.step, self.next_batch, now = self.step + 1, self.next_batch + self.step_batches, self.clock()
                self.elapsed, stops = self._agree_on_time(self.elapsed + now - last)
                last = now
                self._update_average()
                self._report_step(parts | {"seconds": self.elapsed})
                if stops and self.progress < 1:
                    self._save_weights()
                    raise TrainingStopped(f"Training stopped after step {self.step}; {self._how_to_resume()}")
                if self.elapsed - last_checkpoint >= 60 * self.options.checkpoint_minutes:
                    last_checkpoint = self.elapsed
                    self.save()
                if self.progress >= 1:
                    break
            else:
                self.epoch, self.next_batch = self.epoch + 1, 0
        self.head.load_state_dict(self.average, strict=False)
        self.save()

    def _agree_on_time(self, elapsed: float) -> tuple[float, bool]:
        """Return the main process's time, so that all use one schedule, and whether any process received a signal."""
        state = torch.tensor([[elapsed, self._was_signalled]], dtype=torch.float64, device=self.device)
        states = self.accelerator.gather(state).tolist()
        return states[0][0], any(was_signalled for _, was_signalled in states)

    @contextmanager
    def _stopping_by_signal(self) -> Iterator[None]:
        """Let SIGINT and SIGTERM end the training after the current step; a second one ends one process at once."""

        def stop(number: int, frame: object) -> None:
            # accelerate's launcher repeats the terminal's signal
            if self._was_signalled and self.accelerator.num_processes == 1:
                raise KeyboardInterrupt
            self._was_signalled = True

        try:
            before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:
            # Only the main thread receives signals
            before = {}
        try:
            yield
        except Exception:
            # The launcher terminates all processes of a failed training; this one reports the failure first
            if self.accelerator.num_processes > 1:
                before = {}
            raise
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _how_to_resume(self) -> str:
        if self._num_saved is None:
            return "there is no checkpoint yet."
        return f"the checkpoint of step {self._num_saved} is complete: run the same command with --resume."

    @torch.no_grad()
    def _update_average(self) -> None:
        """Update the moving average of the weights in the last part of the run."""
        if self.options.average_from is None or self.progress < self.options.average_from:
            return
        parameters = dict(self.head.named_parameters())
        if self.average:
            torch._foreach_lerp_(list(self.average.values()), list(parameters.values()), 1 - AVERAGE_DECAY)
        else:
            self.average = {name: parameter.clone() for name, parameter in parameters.items()}

    def _remaining_batches(self) -> DataLoader:
        """Return the rest of the epoch's batches for this process; batches that fill no whole step are left out.

        Raises:
            ValueError: an epoch has fewer batches than a step.
        """
        options, needed = self.options, self.step_batches
        batches = epoch_batches(
            self.cache.lengths, options.num_validation, len(self.cache), options.batch_tokens, options.seed, self.epoch
        )
        require(
            len(batches) >= needed,
            f"The corpus has {len(batches)} batches of --batch-tokens {options.batch_tokens:,}, but a step needs "
            f"{needed}; lower --batch-tokens or --accumulate.",
        )
        batches = batches[self.next_batch : len(batches) // needed * needed]
        loader = DataLoader(range(len(self.cache)), batch_sampler=batches, collate_fn=self.cache.batch)
        return prepare_data_loader(
            loader, self.device, self.accelerator.num_processes, self.accelerator.process_index, put_on_device=True,
            even_batches=False,
        )  # fmt: skip

    def _train_on(self, first: Batch, following: Iterator[Batch]) -> dict[str, float]:
        """Run one optimizer step over this process's batches.

        Args:
            first: the first batch.
            following: the step's other batches come from here.

        Returns:
            The means of the loss and its parts; positions are summed.
        """
        rate = learning_rate_at(self.progress, self.step, self.options)
        for group in (group for optimizer in self.optimizers for group in optimizer.param_groups):
            group["lr"] = rate * group.get("rate", 1.0)
        num_steps = unroll_steps_at(self.progress, self.options)
        self.prepared.train()
        results = []
        for number in range(self.options.accumulate):
            batch = next(following) if number else first
            with self.accelerator.accumulate(self.prepared):
                results.append(self._backward(batch, number, num_steps))
                if self.accelerator.sync_gradients:
                    norm = float(self.accelerator.clip_grad_norm_(self.head.parameters(), CLIP_NORM))
                    if not math.isfinite(norm):
                        raise ValueError(
                            f"Loss or gradient is not finite at step {self.step}; resume from the last checkpoint with "
                            "a lower learning rate, and check the features for values that are not finite."
                        )
                for optimizer in self.optimizers:
                    optimizer.step()
                    optimizer.zero_grad()
        means = {name: sum(result[name] for result in results) / len(results) for name in results[0]}
        means["positions"] *= len(results)
        return means | {"learning_rate": rate, "gradient_norm": norm, "unroll": num_steps}

    def _backward(self, batch: Batch, number: int, num_steps: int) -> dict[str, float]:
        """Add a batch's gradient; its noise and sampled vocabulary depend only on its number in the run.

        Args:
            batch: on the head's device.
            number: index of the batch in this process's step.
            num_steps: number of unrolled steps.
        """
        options, processes = self.options, self.accelerator
        in_run = self.step * self.step_batches + number * processes.num_processes + processes.process_index
        generator = torch.Generator().manual_seed(options.seed * 1_000_003 + in_run)
        labels = self.draft_index[batch.ids.flatten()].unique()
        vocabulary = sample_vocabulary(
            self.head.output_weight, self.frequent, labels[labels >= 0], options.sampled_rows, generator
        )
        noise = None
        if num_steps == 1 and self.noise_width > 0:
            noise = (torch.rand(batch.inputs.shape, generator=generator) - 0.5) * self.noise_width
            noise = noise.to(batch.features.device)
        loss, parts = self.prepared(batch, vocabulary, num_steps, noise)
        self.accelerator.backward(loss)
        return parts | {"loss": loss.item()}

    def _report_step(self, parts: dict[str, float]) -> None:
        """Log the means of the last 20 steps, the speed in learned positions per second, and the time left."""
        self.window.append(parts)
        if self.step % REPORT_STEPS:
            return
        seconds = self.window[-1]["seconds"] - self.window[0]["seconds"]
        positions = sum(step["positions"] for step in self.window[1:])
        names = sorted(parts.keys() - {"seconds"})
        # Unrolling may start within the window: only steps that have all of these parts count
        window = [step for step in self.window if parts.keys() <= step.keys()]
        local = torch.tensor([sum(step[name] for step in window) / len(window) for name in names], dtype=torch.float64)
        means = dict(zip(names, self.accelerator.reduce(local.to(self.device), "mean").tolist(), strict=True))
        means["positions_per_second"] = positions * self.accelerator.num_processes / max(seconds, 1e-9)
        self.window = []
        gaps = (
            f"{name.removesuffix('/token')} {means[name] - means['target_entropy']:.3f}"
            for name in names
            if name.endswith("/token")
        )
        if self.accelerator.is_main_process:
            minutes_left = self.elapsed * max(1 / self.progress - 1, 0) / 60
            log.info(
                "step %d epoch %d.%d %.1f min, %.1f left | gap to target: %s | feature %.4f | lr %.2e | norm %.2f | "
                "%.0f positions/s",
                self.step, self.epoch, self.next_batch, self.elapsed / 60, minutes_left, " ".join(gaps),
                means["main_1/feature"], means["learning_rate"], means["gradient_norm"], means["positions_per_second"],
            )  # fmt: skip
        self.accelerator.log(means, self.step)

    def save(self) -> None:
        """Write the head and a checkpoint, and log the numbers of `validate`."""
        self._save_weights()
        if self.validate and self.accelerator.is_main_process:
            numbers = self.validate(self.objective)
            log.info("step %d validation: %s", self.step, " ".join(f"{k} {v:.3f}" for k, v in numbers.items()))
            self.accelerator.log({f"validation/{name}": value for name, value in numbers.items()}, self.step)

    def _save_weights(self) -> None:
        """Write the head and a checkpoint; an earlier checkpoint is deleted once the new one is complete."""
        is_main, state = self.accelerator.is_main_process, self.folders.state
        if is_main:
            save_head(self.head, self.folders.head)
        if state is None:
            return
        folder = state / f"step-{self.step:08d}"
        if is_main:
            shutil.rmtree(folder, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        try:
            self.accelerator.save_state(str(folder))
            if is_main and self.average:
                save_file(self.average, folder / AVERAGE_NAME)
        except Exception as error:
            # torch and safetensors have other types for errors of a file
            if is_out_of_memory(error) or isinstance(error, OSError):
                raise
            raise OSError(f"The training state could not be written to {folder}; is the disk full?") from error
        self.accelerator.wait_for_everyone()
        if is_main:
            progress = {
                "options": asdict(self.options),
                "position": [self.step, self.epoch, self.next_batch],
                "elapsed": self.elapsed,
            }
            write_atomically(folder / PROGRESS_NAME, json.dumps(progress, indent=1) + "\n")
            checksums = {path.name: file_sha256(path) for path in sorted(folder.iterdir())}
            write_atomically(folder / CHECKSUMS_NAME, json.dumps(checksums, indent=1) + "\n")
            for earlier in set(state.glob("step-*")) - {folder}:
                shutil.rmtree(earlier)
        self._num_saved = self.step

    def resume(self) -> None:
        """Continue from the last complete checkpoint; log which options have changed.

        Raises:
            FileNotFoundError: there is no checkpoint.
            ValueError: it is corrupted or of another head, or the order of batches would change.
        """
        folders = complete_checkpoints(self.folders.state)
        if not folders:
            raise FileNotFoundError(
                f"Nothing to resume: {self.folders.state} has no checkpoint; start without --resume."
            )
        folder = folders[-1]
        try:
            for name, sha256 in json.loads((folder / CHECKSUMS_NAME).read_text(encoding="utf-8")).items():
                require(file_sha256(folder / name) == sha256, f"the checksum of {name} differs")
            progress = json.loads((folder / PROGRESS_NAME).read_text(encoding="utf-8"))
            old, position = progress["options"], [int(number) for number in progress["position"]]
            self.accelerator.load_state(str(folder))
            # Checkpoints are written between steps, and another number of processes accumulates other batches
            self.accelerator.step = 0
            self.step, self.epoch, self.next_batch = position
            self.elapsed = float(progress["elapsed"])
            if (folder / AVERAGE_NAME).is_file():
                average = load_file(folder / AVERAGE_NAME, str(self.device))
                self.average = {name: average[name] for name, _ in self.head.named_parameters()}
        except Exception as error:
            if is_out_of_memory(error):
                raise
            raise ValueError(
                f"{folder} is not a readable checkpoint of such a head; start without --resume, and with --init "
                "FOLDER to continue from a head's weights."
            ) from error
        self._num_saved = self.step
        _compare_options(old, json.loads(json.dumps(asdict(self.options))))


def complete_checkpoints(state: Path) -> list[Path]:
    """Return the folders of the complete checkpoints in a folder, the last step at the end."""
    return [path.parent for path in sorted(state.glob(f"step-*/{CHECKSUMS_NAME}"))]


def _compare_options(old: dict, new: dict) -> None:
    """Log which options have changed since the start of a run.

    Raises:
        ValueError: one of `FIXED_OPTIONS` differs.
    """
    changed = [name for name, value in new.items() if old.get(name) != value]
    changes = ", ".join(f"{name} {old.get(name)} → {new[name]}" for name in changed)
    if set(changed) & set(FIXED_OPTIONS):
        raise ValueError(
            f"These options cannot change when a run resumes ({changes}); resume with the old values, or start "
            "without --resume."
        )
    if changed:
        log.warning("Resumed with other options than the run started with: %s.", changes)
