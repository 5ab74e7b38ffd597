"""The cost of a large pair with a small pair's acceptance: inner widths filled up with zeros, the text unchanged.

A zero column of the gate and the up projection gives silu(0) · 0 = 0, and a zero row of the down projection adds
nothing, so the widened models compute what they computed before; only more weights are read and multiplied. Hidden
size, heads, layers and vocabularies stay. Sizes are those of Vicuna 7B and its Jakiro head (arXiv 2502.06282).

`python -m lab.scaling 7b` benchmarks a pair that was widened so.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from torch import Tensor, nn

from jakiro.bench.command import measure
from jakiro.bench.runner import BenchSettings, loadable
from jakiro.decode.device_profile import DeviceProfile
from jakiro.generator import JakiroGenerator
from jakiro.heads.jakiro import JakiroConfig
from jakiro.heads.jakiro.network import JakiroHead
from jakiro.heads.layer_head import LayerHead
from jakiro.loading.loader import LoadedModels, LoadOptions, read_pair, start_pair
from jakiro.loading.placement import free_memory
from jakiro.loading.shapes import SEVEN_B
from jakiro.prompts import load_questions
from jakiro.system import comma_list, errors_as_one_sentence

WIDTH_UNIT = 64
# On a CPU layers are held twice while they are packed.
SHARE_OF_FREE_MEMORY = {"cpu": 0.25, "cuda": 0.5}


@dataclass(frozen=True, slots=True)
class PassWeights:
    """How many weights one pass of the target and one of the draft head read."""

    target: int
    head: int


OFFICIAL = {"7b": PassWeights(SEVEN_B.weights_read, SEVEN_B.head_weights_read)}


@dataclass(frozen=True, slots=True)
class Widening:
    """What was widened, and what a pass reads now.

    Attributes:
        scale: the official pair's name.
        inner_size, expert_size: new inner widths of the target's MLP and of one expert; `before` has the old ones.
        weights: read by one pass of the widened target and head.
    """

    scale: str
    inner_size: int
    expert_size: int
    before: tuple[int, int]
    weights: PassWeights

    @property
    def sentence(self) -> str:
        official = OFFICIAL[self.scale]
        return (
            f"Widened with zeros to the costs of {self.scale}: MLP {self.before[0]:,} → {self.inner_size:,}, experts "
            f"{self.before[1]:,} → {self.expert_size:,}. A pass of the target reads "
            f"{self.weights.target / 1e6:,.0f} million weights, one of the head {self.weights.head / 1e6:,.0f}: "
            f"{100 * self.weights.head / self.weights.target:.1f} % (official: "
            f"{100 * official.head / official.target:.1f} %). Texts and acceptance are the small pair's."
        )


class Widener:
    """Widens a pair between reading and starting it.

    Args:
        scale: a name in `OFFICIAL`.

    Attributes:
        widening: what was done; None before a pair came.
    """

    def __init__(self, scale: str) -> None:
        if scale not in OFFICIAL:
            raise ValueError(f"A pair can be scaled to {', '.join(OFFICIAL)}; got {scale!r}.")
        self.scale, self.widening = scale, None

    def __call__(self, read: LoadedModels) -> LoadedModels:
        """The pair widened in place, under a name of its own: neither its costs nor its hash are the small one's."""
        if read.head is None:
            raise ValueError("Only a target with a draft head can be scaled: the costs of both are what is scaled.")
        weight = read.model.get_output_embeddings().weight
        room = SHARE_OF_FREE_MEMORY.get(weight.device.type, 0.25) * free_memory(weight.device)
        self.widening = widen(read.model, read.head, self.scale, int(room / weight.element_size()))
        name = f"{read.names.target_name}, widened to {self.scale}'s costs (MLP {self.widening.inner_size:,})"
        return replace(read, names=replace(read.names, target_name=name), sha256=None)


def widen(model: nn.Module, head: LayerHead, scale: str, weight_limit: int) -> Widening:
    """Widens target and head in place until a pass of each reads what the official pair's does, or in its ratio.

    Args:
        model: a stock causal language model that nothing has been packed of yet.
        head: its draft head, not packed either.
        scale: a name in `OFFICIAL`.
        weight_limit: the most weights that the target may read; a smaller target keeps the official cost ratio.

    Raises:
        ValueError: layers without gate, up and down projections, or a head too large for the ratio within the limit.
    """
    layers = [getattr(layer, "mlp", None) for layer in model.base_model.layers]
    if not all(type(getattr(mlp, name, None)) is nn.Linear for mlp in layers for name in _MLP_NAMES):
        raise ValueError(
            f"{model.config.model_type} has no gate, up and down projections to widen; choose a target with Llama's."
        )
    official = OFFICIAL[scale]
    ratio = official.head / official.target
    before = layers[0].gate_proj.out_features, head.config.expert_intermediate_size
    now = PassWeights(_target_weights(model), _head_weights(head))
    wanted = max(min(official.target, weight_limit), round(now.head / ratio))
    per_width = PassWeights(
        target=3 * len(layers) * layers[0].gate_proj.in_features,
        head=sum(parameter.numel() for parameter in head.layers[0].mlp_moe.experts.parameters()) // before[1],
    )
    if wanted > max(weight_limit, now.target):
        raise ValueError(
            f"The draft head reads {now.head:,} weights a pass; a target in {scale}'s ratio would read {wanted:,}, and "
            f"here is room for {weight_limit:,}."
        )
    inner_size = before[0] + _whole_units((wanted - now.target) / per_width.target)
    target = now.target + (inner_size - before[0]) * per_width.target
    expert_size = before[1] + _whole_units((ratio * target - now.head) / per_width.head)
    for mlp in layers:
        _widen_projections(mlp, inner_size)
    model.config.get_text_config().intermediate_size = inner_size
    for expert in head.layers[0].mlp_moe.experts:
        _widen_projections(expert, expert_size)
    head.config = replace(head.config, expert_intermediate_size=expert_size)
    weights = PassWeights(target, _head_weights(head))
    return Widening(scale, inner_size, expert_size, before, weights)


_MLP_NAMES = ("gate_proj", "up_proj", "down_proj")
_NARROWING = ("down_proj", "proj")


def _whole_units(width: float) -> int:
    return max(round(width / WIDTH_UNIT), 0) * WIDTH_UNIT


def _target_weights(model: nn.Module) -> int:
    return _read_by(model.base_model, model.get_output_embeddings())


def _head_weights(head: LayerHead) -> int:
    rows = head.config.draft_vocab_size or head.config.vocab_size
    return _read_by(head) + rows * head.config.hidden_size


def _widen_projections(module: nn.Module, inner_size: int) -> None:
    """Fills up the inner width of every projection into or out of it with zeros."""
    for name, linear in module.named_children():
        if not isinstance(linear, nn.Linear):
            continue
        outwards = name in _NARROWING
        shape = (linear.out_features, inner_size) if outwards else (inner_size, linear.in_features)
        linear.weight = nn.Parameter(_filled_up(linear.weight.detach(), shape), requires_grad=False)
        linear.out_features, linear.in_features = shape
        if linear.bias is not None and not outwards:
            linear.bias = nn.Parameter(_filled_up(linear.bias.detach(), (inner_size,)), requires_grad=False)


def _filled_up(weight: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The weight followed by zeros, really written: the system maps pages never written to one that all share."""
    wide = torch.empty(shape, dtype=weight.dtype, device=weight.device).zero_()
    wide[tuple(slice(size) for size in weight.shape)] = weight
    return wide


SHAPES = {"7b-random": SEVEN_B}


@dataclass(frozen=True, slots=True)
class TrueShape(Widening):
    """What took the small pair's place: an official pair's true shape with random weights.

    Widening keeps a small pair's text but also its hidden size, heads and layers; here those are the real ones. Nothing
    is fetched. A random head guesses nothing right, so drafted speed says what a step costs, not how fast text is.
    """

    @property
    def sentence(self) -> str:
        return (
            f"Random weights of the shape {self.scale}: a pass of the target reads {self.weights.target / 1e6:,.0f} "
            f"million weights, one of the head {self.weights.head / 1e6:,.0f}. The text means nothing, and next to no "
            "guess is right: what counts is what plain steps, drafts and passes over trees cost."
        )


class RandomPair:
    """Puts random weights in the place of a pair that was read, see `Widener`; tokenizer and vocabulary stay."""

    def __init__(self, scale: str) -> None:
        self.scale, self.widening = scale, None

    def __call__(self, read: LoadedModels) -> LoadedModels:
        from transformers import AutoModelForCausalLM, LlamaConfig

        weight = read.model.get_output_embeddings().weight
        shape, vocabulary = SHAPES[self.scale], read.model.config.get_text_config().vocab_size
        config = LlamaConfig(
            vocab_size=vocabulary, hidden_size=shape.hidden, intermediate_size=shape.inner,
            num_hidden_layers=shape.layers, num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads,
            max_position_embeddings=2048,
        )  # fmt: skip
        with weight.device:
            model = AutoModelForCausalLM.from_config(config, dtype=weight.dtype).eval().requires_grad_(False)
            head = JakiroHead(
                JakiroConfig(
                    hidden_size=config.hidden_size,
                    num_attention_heads=config.num_attention_heads,
                    num_key_value_heads=config.num_key_value_heads,
                    vocab_size=vocabulary,
                    expert_intermediate_size=config.hidden_size,
                )
            )
        head = head.to(weight.dtype).eval().requires_grad_(False)
        before = read.model.config.get_text_config().intermediate_size, 0
        weights = PassWeights(_target_weights(model), _head_weights(head))
        self.widening = TrueShape(self.scale, config.intermediate_size, config.hidden_size, before, weights)
        names = replace(read.names, target_name=f"random weights, {self.scale}", head_name=f"random, {self.scale}")
        return replace(read, names=names, model=model, head=head, sha256=None, head_sha256=None)


def _read_by(*parts: nn.Module) -> int:
    """Weights of all linear layers."""
    linears = [each for part in parts for each in part.modules() if isinstance(each, nn.Linear)]
    return sum(each.weight.numel() for each in linears)


def scaler(scale: str) -> Widener | RandomPair:
    """What changes a pair's costs, by its name.

    Raises:
        ValueError: an unknown one.
    """
    return RandomPair(scale) if scale in SHAPES else Widener(scale)


def scaled_bench(
    scale: Annotated[str, typer.Argument(help="7b: widened with zeros, same text; 7b-random: true shape, no text.")],
    methods: Annotated[str, typer.Option(help="Comma list, see `python -m jakiro methods`.")] = "autoregressive,jakiro",
    nodes: Annotated[str, typer.Option(help="Comma list of node budgets, or auto.")] = "auto",
    temperatures: Annotated[str, typer.Option(help="Comma list.")] = "0,1",
    limit: Annotated[int | None, typer.Option(help="At most this many prompts.")] = None,
    max_new_tokens: Annotated[int, typer.Option(help="At most this many tokens.")] = 128,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.")] = None,
    numerics: Annotated[str | None, typer.Option(help="exact or fast.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for results.")] = Path("runs/scaled"),
) -> None:
    """Benchmark a pair with the costs of a larger one."""
    settings = BenchSettings(
        methods=tuple(comma_list("--methods", methods, str)),
        temperatures=tuple(comma_list("--temperatures", temperatures, float)),
        nodes=tuple(comma_list("--nodes", nodes, int, words=("auto",))),
        max_new_tokens=max_new_tokens,
    )
    if settings.peers.keys() & set(settings.methods):
        raise ValueError("Only our copy of the target is widened; leave hf-… out of --methods.")
    widener, console = scaler(scale), Console()
    # The official pair's head is as wide as its numbers are
    options = LoadOptions(device=device, numerics=numerics, draft_precision="full")
    generator = JakiroGenerator.from_parts(start_pair(widener(read_pair(options))))
    settings, left_out = loadable(generator, settings)
    for sentence in (*generator.target.notices, *generator.notices, *left_out, widener.widening.sentence):
        console.print(sentence, markup=False, highlight=False)
    stamp = {"widened": asdict(widener.widening)}
    measure(generator, settings, load_questions(limit=limit), out, console, further_stamp=stamp)
    console.print(measured_passes(generator.profile), highlight=False)


def measured_passes(profile: DeviceProfile) -> str:
    """What the passes cost whose sizes were changed."""
    target, draft = profile.verify(1), profile.draft(1)
    return (
        f"Measured here: {target:.1f} ms a target pass over one node, {draft:.1f} ms the draft of one level "
        f"({100 * draft / target:.0f} %)."
    )


if __name__ == "__main__":
    with errors_as_one_sentence():
        typer.run(scaled_bench)
