"""Before training: the draft vocabulary, a head's config for its target, and initial weights near a linear guess."""

import numpy as np
import torch
from torch import Tensor

from jakiro.heads.base import DraftHead
from jakiro.heads.config import DraftConfig
from jakiro.heads.layer_head import LayerHead
from jakiro.target.families import num_kv_heads, output_function
from jakiro.training.features import FeatureCache
from jakiro.training.optimizer import whitening_matrix

STARTS = ("least-squares", "identity")
Rows = tuple[Tensor, Tensor, Tensor]


def frequent_token_ids(ids: np.ndarray, vocab_size: int, count: int) -> Tensor:
    """The `count` most frequent ids of a corpus (the lower id first where counts tie), in ascending order."""
    counts = np.bincount(ids, minlength=vocab_size)
    return torch.from_numpy(np.sort(np.argsort(-counts, kind="stable")[:count]).astype(np.int64))


@torch.no_grad()
def start_weights(
    head: LayerHead, cache: FeatureCache, seed: int, start: str, first: int = 0, num_sequences: int = 110
) -> None:
    """Initialises a bound head in place, as well as is possible without gradients.

    Args:
        start: "least-squares" makes `fc` the best linear guess of h_{t+1} from [E[x_{t+1}]; h_t] and the experts' last
            matrices the best correction of it that their random inner features allow, for both branches at once;
            attention adds nothing. "identity" passes h_t through, adds the embedding at the features' scale and leaves
            the experts random.
        first: sequences before this one are held out and not read.

    Raises:
        ValueError: an unknown start.
    """
    if start not in STARTS:
        raise ValueError(f"Start must be one of {', '.join(STARTS)}; you gave {start!r}.")
    start_layer(head, sample_rows(head, cache, first, num_sequences), seed, start)


@torch.no_grad()
def start_layer(head: LayerHead, rows: Rows, seed: int, start: str) -> None:
    """`start_weights` from what `sample_rows` found."""
    torch.manual_seed(seed)
    randomise(head)
    inputs, now, ahead = rows
    attention, mixture = head.layers[0].self_attn, head.layers[0].mlp_moe
    stream = whitening_matrix(now)
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
        projection.weight.copy_(projection.weight @ stream)
    attention.o_proj.weight.zero_()
    mixture.gate.weight.mul_(0.1)
    hidden = head.config.hidden_size
    if start == "identity":
        scale = float(now.std() / inputs[:, :hidden].std())
        head.fc.weight[:, :hidden].normal_(std=0.3 * scale * hidden**-0.5)
        head.fc.weight[:, hidden:].copy_(torch.eye(hidden))
        for expert in mixture.experts:
            list(expert.children())[-1].weight.mul_(0.3 * now.std())
        return
    fit(head.fc, inputs, now)
    _start_experts(head, head.fc(inputs), now, ahead)


@torch.no_grad()
def adopt_stream(
    head: LayerHead, source: LayerHead, cache: FeatureCache, seed: int, first: int = 0, num_sequences: int = 110
) -> None:
    """Takes everything before the experts from a trained head with other ones, fits new experts by least squares.

    Args:
        first: sequences before this one are held out and not read.

    Raises:
        ValueError: the trained head has no layer.
    """
    if not source.config.num_layers:
        raise ValueError("The head to start from has no layer to take over; choose one with a layer, or leave it out.")
    torch.manual_seed(seed)
    layer = head.layers[0]
    head.fc.load_state_dict(source.fc.state_dict())
    layer.self_attn.load_state_dict(source.layers[0].self_attn.state_dict())
    layer.post_attention_layernorm.load_state_dict(source.layers[0].post_attention_layernorm.state_dict())
    randomise(layer.mlp_moe)
    layer.mlp_moe.gate.weight.mul_(0.1)
    parts = []
    for index in range(first, min(first + num_sequences, len(cache))):
        inputs, now, ahead = sample_rows(head, cache, index, 1)
        hidden = head.fc(inputs)[None]
        angles = head.angles(hidden, torch.arange(hidden.shape[1], device=hidden.device)[None])
        parts.append(((hidden + layer.self_attn(hidden, angles, None, None))[0], now, ahead))
    _start_experts(head, *map(torch.cat, zip(*parts, strict=True)))


def continue_weights(head: DraftHead, source: DraftHead) -> None:
    """Copies the weights of a trained head into one of the same shape; the draft vocabularies may differ.

    Raises:
        ValueError: a weight has another shape, or only one of the two heads has it.
    """
    ours, theirs = dict(head.named_parameters()), dict(source.named_parameters())
    for name in sorted(ours.keys() | theirs.keys()):
        shapes = [tuple(side[name].shape) if name in side else "none" for side in (theirs, ours)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"The head to start from has {name} of shape {shapes[0]}, the options ask for {shapes[1]}; give the "
                "same fusion, experts and expert width, and a head made for this target."
            )
    with torch.no_grad():
        for name, parameter in ours.items():
            parameter.copy_(theirs[name])


def randomise(module: torch.nn.Module) -> None:
    """Gives every linear layer in the module random weights whose output is as large as their input."""
    for layer in module.modules():
        if isinstance(layer, torch.nn.Linear):
            torch.nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
            if layer.bias is not None:
                layer.bias.zero_()


def _start_experts(head: LayerHead, stream: Tensor, now: Tensor, ahead: Tensor) -> None:
    """Whitens the inputs of the experts' random matrices and fits their last ones.

    Args:
        stream: (rows, hidden), to which the experts' outputs are added.
        now, ahead: (rows, hidden), the features at t + 1 and t + 2.
    """
    normed = head.layers[0].post_attention_layernorm(stream)
    experts = head.layers[0].mlp_moe.experts
    whiten_readers(experts, normed)
    readers = [list(expert.children())[:-1] for expert in experts]
    inner = [expert.inner(*(read(normed) for read in own)) for expert, own in zip(experts, readers, strict=True)]
    _fit_experts(head, inner, normed, now - stream, ahead - stream)


def _fit_experts(head: LayerHead, inner: list[Tensor], normed: Tensor, main: Tensor, contrastive: Tensor) -> None:
    """Solves for the experts' last matrices, which correct the main branch and, if there is one, the contrastive.

    Args:
        inner: (rows, inner) per expert, what its last matrix reads.
        main, contrastive: (rows, hidden), what each branch has to add to the stream.
    """
    mixture = head.layers[0].mlp_moe
    if head.config.contrastive:
        # Without a lead the stronger expert of the contrastive pair would change from row to row. Normed features share
        # a large mean, so a gate along that mean serves as the bias which the gate lacks.
        mean = normed.mean(0)
        mixture.gate.weight[-2:] += 1.5 * torch.stack([mean, -mean]) / mean.square().sum()
    lasts = [list(expert.children())[-1] for expert in mixture.experts]
    if head.config.fusion == "decoupled":
        for last, features in zip(lasts, inner, strict=True):
            last.weight.copy_(ridge(features, main).T)
        return

    def weighted(shares: Tensor) -> Tensor:
        return torch.cat([share[:, None] * features for share, features in zip(shares.T, inner, strict=True)], dim=1)

    router = mixture.gate(normed)
    rows, wanted = weighted(router[:, : len(inner)].softmax(-1)), main
    if head.config.contrastive:
        pair = router[:, len(inner) :]
        signed = pair.softmax(-1) * torch.where(pair >= pair.flip(-1), 1.0, -1.0)
        rows, wanted = torch.cat([rows, weighted(signed)]), torch.cat([main, contrastive])
    for last, part in zip(lasts, ridge(rows, wanted).split([last.in_features for last in lasts]), strict=True):
        last.weight.copy_(part.T)


def fit(linear: torch.nn.Linear, rows: Tensor, wanted: Tensor) -> None:
    """Makes a linear layer, with its bias where it has one, the best map from rows to what is wanted."""
    solution = ridge(torch.cat([rows, torch.ones_like(rows[:, :1])], dim=1), wanted)
    linear.weight.copy_(solution[:-1].T)
    if linear.bias is not None:
        linear.bias.copy_(solution[-1])


def whiten_readers(experts: torch.nn.ModuleList, rows: Tensor) -> None:
    """Whitens the inputs of the experts' random matrices that read `rows`: all but the last of each."""
    white = whitening_matrix(rows)
    for expert in experts:
        for reader in list(expert.children())[:-1]:
            reader.weight.copy_(reader.weight @ white)


def ridge(rows: Tensor, wanted: Tensor) -> Tensor:
    """(columns, outputs) of the linear map from rows to what is wanted, by ridge regression."""
    gram = (rows.T @ rows).double()
    gram.diagonal().add_(1e-3 * gram.diagonal().mean())
    return torch.linalg.solve(gram, (rows.T @ wanted).double()).to(rows)


@torch.no_grad()
def sample_rows(head: LayerHead, cache: FeatureCache, first: int, num_sequences: int) -> Rows:
    """The head's inputs and the features that it should predict from them.

    Returns:
        (rows, 2 · hidden) [E[x_{t+1}]; h_t], (rows, hidden) h_{t+1} and h_{t+2}.
    """
    parts = []
    for index in range(first, min(first + num_sequences, len(cache))):
        batch = cache.batch([index]).to(head.output_weight.device)
        features = batch.features[0]
        inputs = torch.cat([head.embed(batch.ids[0, 1:-1]), features[:-2]], dim=-1)
        parts.append((inputs, features[1:-1], features[2:]))
    return tuple(map(torch.cat, zip(*parts, strict=True)))


@torch.no_grad()
def input_whitening(head: DraftHead, rows: Rows) -> dict[str, Tensor]:
    """Whitening for every matrix that reads features, by its name, from what `sample_rows` found."""
    inputs, features, following = rows
    stream, hidden = whitening_matrix(features), head.config.hidden_size
    matrices = {"fc.weight": whitening_matrix(inputs)}
    for index, layer in enumerate(head.layers if head.config.num_layers else ()):
        read = stream if layer.input_layernorm is None else whitening_matrix(layer.input_layernorm(features))
        matrices |= {f"layers.{index}.self_attn.{name}_proj.weight": read for name in "qkv"}
        normed = whitening_matrix(layer.post_attention_layernorm(features))
        for name, parameter in layer.named_parameters(f"layers.{index}"):
            if ".experts." in name and parameter.shape[1] == hidden:
                matrices[name] = normed
    if head.config.network == "staged":
        pairs = whitening_matrix(torch.cat([features, following], dim=-1))
        matrices |= {f"mlps.{number}.read.weight": pairs for number in range(head.config.num_parallel)}
    if head.config.network == "mlps":
        matrices |= {name: stream for name, parameter in head.named_parameters() if parameter.ndim == 2}
    return matrices


def head_config(target_config, expert_width: int, draft_vocab: int | None, fusion: str, **fields) -> DraftConfig:
    """The config of a head for a transformers target; `fields` go in as they are."""
    target_config = target_config.get_text_config()
    return DraftConfig(
        hidden_size=target_config.hidden_size,
        num_attention_heads=target_config.num_attention_heads,
        num_key_value_heads=num_kv_heads(target_config),
        head_dim=getattr(target_config, "head_dim", None),
        vocab_size=target_config.vocab_size,
        expert_intermediate_size=expert_width,
        draft_vocab_size=draft_vocab if draft_vocab and draft_vocab < target_config.vocab_size else None,
        fusion=fusion,
        rms_norm_eps=getattr(target_config, "rms_norm_eps", 1e-6),
        rope_parameters=_rope_parameters(target_config),
        max_position_embeddings=target_config.max_position_embeddings,
        **fields,
    )


def equal_width(source: DraftConfig, fusion: str, num_experts: int) -> int:
    """The inner width that gives the experts of one layer as many parameters as the source's have."""
    matrices = {"summed": 3, "decoupled": 2}
    total = source.expert_intermediate_size * source.num_experts * matrices[source.fusion]
    return total // (num_experts * matrices[fusion])


def _rope_parameters(target_config) -> dict:
    """The rotary settings of full attention; some families have others for their sliding windows."""
    parameters = dict(getattr(target_config, "rope_parameters", None) or {})
    parameters = dict(parameters.get("full_attention", parameters))
    return parameters or {"rope_type": "default", "rope_theta": 10000.0}


def check_output_function(model) -> None:
    """Training computes the target's distribution as softmax(W h).

    Raises:
        ValueError: this target's logits are also scaled, capped or shifted.
    """
    layer = model.get_output_embeddings()
    if getattr(layer, "bias", None) is not None or output_function(model, layer.weight) is not layer:
        raise ValueError(
            f"{model.config.get_text_config().model_type} scales, caps or shifts its logits, which training does not "
            "support; choose a target whose output function is one matrix."
        )
