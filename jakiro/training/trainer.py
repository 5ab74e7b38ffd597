"""The training loop: checkpoints, exact resume, progress. Schedule, features, losses and checks live elsewhere."""

import logging
import math
import zipfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from jakiro.config import require
from jakiro.heads.base import DraftHead
from jakiro.heads.checkpoint import save_head
from jakiro.heads.kind import Kinds
from jakiro.heads.kinds import KINDS, kind_named
from jakiro.loading.loader import gpu_computes_bfloat16
from jakiro.ops.linear import packs_bfloat16
from jakiro.system import atomic_file, is_out_of_memory
from jakiro.training.features import Batch, FeatureCache, epoch_batches
from jakiro.training.losses import Objective, draft_index, objective_for, sample_vocabulary
from jakiro.training.optimizer import muon_and_adamw
from jakiro.training.schedule import TrainingOptions, clock_named, learning_rate_at, unroll_steps_at

STATE_NAME = "training_state.pt"
ROUTER = "mlp_moe.gate.weight"
REPORT_STEPS = 20
AVERAGE_DECAY = 0.99
# Decoupled decay of the weights, and the largest norm of a gradient
WEIGHT_DECAY, CLIP_NORM = 1e-3, 1.0
WHITENING_TEXTS, NOISE_TEXTS = 100, 16
# What decides which texts a batch holds, so where a run stands among them
KEPT_OPTIONS = ("seed", "batch_tokens", "num_validation")
log = logging.getLogger(__name__)


class Trainer:
    """Trains a bound head on a feature cache.

    Args:
        head: bound to its target; trained in place.
        cache: the target's features.
        out: folder of the head.
        state_folder: folder of the training state, for `resume`; None keeps none.
        logdir: tensorboard folder, None for none.
        validate: called with the objective at every checkpoint; returns numbers to log.
        clock: seconds, for tests; what the options name if not given.
        kinds: of heads, among them this one's, see `Methods.kinds`.
        objective: what the head learns by; None for that of its kind.
    """

    def __init__(
        self,
        head: DraftHead,
        cache: FeatureCache,
        options: TrainingOptions,
        out: Path,
        state_folder: Path | None = None,
        logdir: Path | None = None,
        validate: Callable[[Objective], dict[str, float]] | None = None,
        clock: Callable[[], float] | None = None,
        kinds: Kinds = KINDS,
        objective: Objective | None = None,
    ) -> None:
        self.head, self.cache, self.options = head, cache, options
        self.kind = kind_named(head.config.kind, kinds)
        self.out, self.state_folder = Path(out), state_folder and Path(state_folder)
        self.validate, self.clock = validate, clock or clock_named(options.time_budget_clock)
        self.device = next(head.parameters()).device
        self.uses_bfloat16 = options.precision == "bfloat16"
        if self.uses_bfloat16 and self.device.type == "cuda" and not gpu_computes_bfloat16(self.device):
            # Nor in float16, where small gradients become zero.
            log.warning("This GPU does not compute bfloat16 in hardware; the head's passes run in float32.")
            self.uses_bfloat16 = False
        for name, parameter in head.named_parameters():
            # A router over one expert always says 1, whatever it learns
            if name.endswith(ROUTER) and len(parameter) == 1:
                parameter.requires_grad_(False)
        self.objective = objective or objective_for(head, options.weights, kinds)
        self.optimizers = self._optimizers()
        self.frequent, self.draft_index = self._vocabulary()
        texts = cache.texts(options.num_validation, NOISE_TEXTS)
        self.noise_width = options.feature_noise * float(torch.cat([features for _, features in texts]).std())
        self.writer = None
        if logdir:
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(str(logdir))
        self.step = self.epoch = self.next_batch = 0
        self.elapsed = 0.0
        self.window: list[dict[str, float]] = []
        self.average: dict[str, Tensor] = {}

    def whitening(self) -> dict[str, Tensor]:
        """By parameter name, for Muon; of texts that are not held out."""
        texts = self.cache.texts(self.options.num_validation, WHITENING_TEXTS, self.device)
        return self.kind.whitening(self.head, texts)

    def _optimizers(self) -> list[torch.optim.Optimizer]:
        rate = self.options.learning_rate
        routers = [name for name, _ in self.head.named_parameters() if name.endswith(ROUTER)]
        is_half = self.uses_bfloat16 and (self.device.type == "cuda" or packs_bfloat16(self.device, torch.bfloat16))
        dtype = torch.bfloat16 if is_half else torch.float32
        return muon_and_adamw(self.head.named_parameters(), rate, WEIGHT_DECAY, self.whitening(), routers, dtype)

    def _vocabulary(self) -> tuple[Tensor, Tensor]:
        """Which draft tokens are frequent in the corpus, and the draft index of every target token (−1 without one)."""
        draft_ids, vocab_size = self.head.draft_token_ids, self.head.config.vocab_size
        ids = torch.from_numpy(self.cache.learned_ids(self.options.num_validation).astype("int64"))
        counts = torch.bincount(ids, minlength=vocab_size).to(draft_ids)
        frequent = torch.zeros_like(draft_ids, dtype=torch.bool)
        frequent[counts[draft_ids].argsort(descending=True)[: self.options.frequent_rows]] = True
        return frequent, draft_index(self.head)

    @property
    def progress(self) -> float:
        if self.options.max_steps is not None:
            return self.step / self.options.max_steps
        return self.elapsed / (60 * self.options.time_budget)

    def run(self) -> None:
        """Trains to the end of the schedule and saves the head.

        Raises:
            ValueError: the loss is not finite.
        """
        last = self.clock()
        last_checkpoint = self.elapsed
        while self.progress < 1:
            for indices in self._remaining_batches():
                parts = self._train_on(indices)
                self.step, self.next_batch, now = self.step + 1, self.next_batch + 1, self.clock()
                self.elapsed, last = self.elapsed + now - last, now
                self._follow()
                self._report_step(parts | {"seconds": self.elapsed})
                if self.elapsed - last_checkpoint >= 60 * self.options.checkpoint_minutes:
                    last_checkpoint = self.elapsed
                    self.save()
                if self.progress >= 1:
                    break
            else:
                self.epoch, self.next_batch = self.epoch + 1, 0
        self.head.load_state_dict(self.average, strict=False)
        self.save()
        if self.writer:
            self.writer.close()

    @torch.no_grad()
    def _follow(self) -> None:
        """Follows the weights in the last part of the run."""
        if self.options.average_from is None or self.progress < self.options.average_from:
            return
        parameters = dict(self.head.named_parameters())
        if self.average:
            torch._foreach_lerp_(list(self.average.values()), list(parameters.values()), 1 - AVERAGE_DECAY)
        else:
            self.average = {name: parameter.clone() for name, parameter in parameters.items()}

    def _remaining_batches(self) -> list[list[int]]:
        """The batches that are left in the epoch."""
        options = self.options
        batches = epoch_batches(
            self.cache.lengths, options.num_validation, len(self.cache), options.batch_tokens, options.seed, self.epoch
        )
        return batches[self.next_batch :]

    def _train_on(self, indices: list[int]) -> dict[str, float]:
        """One optimizer step over a batch; returns the loss' parts."""
        options = self.options
        rate = learning_rate_at(self.progress, self.step, options)
        for parameters in (each for optimizer in self.optimizers for each in optimizer.param_groups):
            parameters["lr"] = rate * parameters.get("rate", 1.0)
        num_steps = unroll_steps_at(self.progress, options)
        self.objective.train()
        parts = self._backward(self.cache.batch(indices).to(self.device), num_steps)
        norm = float(torch.nn.utils.clip_grad_norm_(self.head.parameters(), CLIP_NORM))
        if not math.isfinite(norm):
            raise ValueError(
                f"Loss or gradient is not finite at step {self.step}; resume from the last checkpoint with a lower "
                "learning rate, and check the features for values that are not finite."
            )
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return parts | {"learning_rate": rate, "gradient_norm": norm, "unroll": num_steps}

    def _backward(self, batch: Batch, num_steps: int) -> dict[str, float]:
        """Computes a batch's gradient; noise and sampled vocabulary depend only on its number in the run."""
        options = self.options
        generator = torch.Generator().manual_seed(options.seed * 1_000_003 + self.step)
        labels = self.draft_index[batch.ids.flatten()].unique()
        vocabulary = sample_vocabulary(
            self.head.output_weight, self.frequent, labels[labels >= 0], options.sampled_rows, generator
        )
        noise = None
        if num_steps == 1 and self.noise_width > 0:
            noise = (torch.rand(batch.inputs.shape, generator=generator) - 0.5) * self.noise_width
            noise = noise.to(batch.features.device)
        with torch.autocast(batch.features.device.type, torch.bfloat16, enabled=self.uses_bfloat16):
            loss, parts = self.objective(batch, vocabulary, num_steps, noise)
        loss.backward()
        return parts | {"loss": loss.item()}

    def _report_step(self, parts: dict[str, float]) -> None:
        """Every 20 steps, logs the means since the last report and the speed in learned positions per second."""
        self.window.append(parts)
        if self.step % REPORT_STEPS:
            return
        seconds = self.window[-1]["seconds"] - self.window[0]["seconds"]
        positions = sum(step["positions"] for step in self.window[1:])
        names = parts.keys() - {"seconds"}
        # Unrolling may have begun within the window: only steps that have all of these parts count.
        window = [step for step in self.window if names <= step.keys()]
        means = {name: sum(step[name] for step in window) / len(window) for name in names}
        means["positions_per_second"] = positions / max(seconds, 1e-9)
        self.window = []
        losses = sorted(name for name in means if name.endswith("/token"))
        gaps = (f"{name.removesuffix('/token')} {means[name] - means['target_entropy']:.3f}" for name in losses)
        log.info(
            "step %d epoch %d.%d %.1f min | gap to target: %s | feature %.4f | lr %.2e | norm %.2f | %.0f positions/s",
            self.step, self.epoch, self.next_batch, self.elapsed / 60, " ".join(gaps), means["main_1/feature"],
            means["learning_rate"], means["gradient_norm"], means["positions_per_second"],
        )  # fmt: skip
        self._plot("", means)

    def save(self) -> None:
        """Writes the head and the training state, each file whole or not at all, and logs what `validate` returns."""
        save_head(self.head, self.out)
        if self.state_folder:
            with atomic_file(self.state_folder / STATE_NAME) as unfinished:
                _write_state(self.state_dict(), unfinished)
        if self.validate:
            numbers = self.validate(self.objective)
            log.info("step %d validation: %s", self.step, " ".join(f"{k} {v:.3f}" for k, v in numbers.items()))
            self._plot("validation/", numbers)

    def _plot(self, prefix: str, numbers: dict[str, float]) -> None:
        for name, value in numbers.items() if self.writer else ():
            self.writer.add_scalar(prefix + name, value, self.step)

    def state_dict(self) -> dict:
        """Everything that a resumed run needs to continue as if it had never stopped."""
        return {
            "head": self.head.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "options": asdict(self.options),
            "position": [self.step, self.epoch, self.next_batch],
            "elapsed": self.elapsed,
            "average": self.average,
        }

    def resume(self) -> None:
        """Continues from the last checkpoint in `state_folder`; logs which options differ from those it started with.

        Raises:
            FileNotFoundError: there is none.
            ValueError: it cannot be read, is of another head, or its texts come in another order.
        """
        path = self.state_folder / STATE_NAME
        if not path.is_file():
            raise FileNotFoundError(f"Nothing to resume: {path} does not exist; start without --resume.")
        try:
            # torch writes the checksums of all parts and does not read them
            with zipfile.ZipFile(path) as file:
                require(file.testzip() is None, "it is not what was written")
            state = torch.load(path, map_location="cpu", weights_only=True)
            old, position = state["options"], [int(number) for number in state["position"]]
            self.step, self.epoch, self.next_batch = position
            self.elapsed = float(state["elapsed"])
            self.average = {name: tensor.to(self.device) for name, tensor in state["average"].items()}
            self.head.load_state_dict(state["head"])
            for optimizer, own in zip(self.optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(own)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            raise ValueError(
                f"{path} is not a readable training state of such a head; start without --resume, and with --init "
                "FOLDER to continue from a head's weights."
            ) from error
        given = asdict(self.options)
        changed = [name for name, value in given.items() if old.get(name) != value]
        said = ", ".join(f"{name} {old.get(name)} → {given[name]}" for name in changed)
        if set(changed) & set(KEPT_OPTIONS):
            raise ValueError(
                f"These options cannot change when a run resumes ({said}); resume with the old values, or start "
                "without --resume."
            )
        if changed:
            log.warning("Resumed with other options than the run started with: %s.", said)


def _write_state(state: dict, path: Path) -> None:
    """Raises OSError where torch cannot write, for which it has another error."""
    try:
        torch.save(state, path)
    except RuntimeError as error:
        raise OSError(f"The training state could not be written to {path.parent}; is the disk full?") from error
