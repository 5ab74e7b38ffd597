"""What a tree of a block's marginals gains over the published chain, on a DFlash head random and one trained briefly.

    python -m lab.training.block_trees --target-steps 300 --head-steps 120

A byte-level target of four small layers learns the project's own pages, then a head of two layers learns from it; both
take minutes. On a busy machine one thread is the fastest (`OMP_NUM_THREADS=1`). τ is tokens a step, over continuations
of passages that neither has read.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import torch
import typer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from jakiro.config import SamplingParams, TreeConfig
from jakiro.drafters.base import Resources
from jakiro.drafters.dflash import METHOD
from jakiro.generator import JakiroGenerator
from jakiro.heads.dflash import DFLASH
from jakiro.heads.kinds import make_head
from jakiro.heads.learning import randomise
from jakiro.models.target import TargetModel
from jakiro.training.start import head_config

BLOCK, LAYERS, VOCABULARY = 8, (1, 3), 257
LENGTH, BATCH = 64, 4
PROMPT, ANSWER, PASSAGES = 100, 32, 8
DECAY = 0.8
SHAPES = {"chain": TreeConfig(width=1, depth=BLOCK - 1, nodes=BLOCK)} | {
    f"tree, {nodes} nodes": TreeConfig(width=8, depth=BLOCK - 1, nodes=nodes) for nodes in (8, 16, 32)
}
SAMPLINGS = {"greedy": SamplingParams(max_new_tokens=ANSWER), "T = 1": SamplingParams(1.0, max_new_tokens=ANSWER)}
Steps = Annotated[int, typer.Option(help="Of learning.")]


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, and one that ends texts, which stands for the mask."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>")


def windows(ids: Tensor, steps: int) -> Iterator[Tensor]:
    """(BATCH, LENGTH) pieces from random places."""
    draw = torch.Generator().manual_seed(0)
    for _ in range(steps):
        starts = torch.randint(len(ids) - LENGTH, (BATCH, 1), generator=draw)
        yield ids[starts + torch.arange(LENGTH)]


def learned_target(ids: Tensor, steps: int) -> LlamaForCausalLM:
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=128, intermediate_size=256, num_hidden_layers=4, num_attention_heads=4,
            max_position_embeddings=1024, bos_token_id=None, eos_token_id=None,
        )
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for batch in windows(ids, steps):
        optimizer.zero_grad()
        model(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
    return model.eval().requires_grad_(False)


@torch.no_grad()
def begin(head) -> None:
    """Random matrices, and layers that begin by adding little."""
    torch.manual_seed(0)
    randomise(head)
    for layer in head.layers:
        layer.self_attn.o_proj.weight.mul_(0.1)
        layer.mlp.down_proj.weight.mul_(0.1)


def learn(head, model: LlamaForCausalLM, ids: Tensor, steps: int) -> None:
    """Every level's cross-entropy to the target's whole distribution, a level's weight falling with its depth."""
    head.requires_grad_(True).train()
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3)
    for batch in windows(ids, steps):
        with torch.no_grad():
            output = model(input_ids=batch, output_hidden_states=True)
            states = [output.hidden_states[layer] for layer in (-1, *LAYERS)]
            wanted = output.logits[:, 1:].softmax(-1)
        loss = 0.0
        for level, predicted in enumerate(DFLASH.levels(head, batch, torch.cat(states, dim=-1)[:, :-1])):
            logs = head.logits(predicted[:, level:]).log_softmax(-1)
            loss = loss - DECAY**level * (wanted[:, level:] * logs).sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    head.requires_grad_(False).eval()


def taus(target: TargetModel, head, prompts: list[str]) -> dict[str, dict[str, tuple[float, float]]]:
    """By sampling and shape: τ over all prompts, and the half width of its interval from a bootstrap over prompts."""
    generator = JakiroGenerator(Resources(target, head, {"name": "tiny", "sha256": None}))
    draw, found = torch.Generator().manual_seed(0), {}
    for name, sampling in SAMPLINGS.items():
        found[name] = {}
        for shape, tree in SHAPES.items():
            traces = [generator.run(prompt, sampling, METHOD.name, tree, raw=True) for prompt in prompts]
            kept = torch.tensor(
                [[sum(len(each.accepted_path) + 1 for each in trace.steps), len(trace.steps)] for trace in traces]
            ).double()
            picks = torch.randint(len(traces), (400, len(traces)), generator=draw)
            tokens, steps = kept[picks].sum(1).unbind(1)
            low, high = (tokens / steps).quantile(torch.tensor([0.025, 0.975]).double()).tolist()
            found[name][shape] = float(kept[:, 0].sum() / kept[:, 1].sum()), (high - low) / 2
    return found


def main(target_steps: Steps = 300, head_steps: Steps = 120) -> None:
    pages = sorted(Path(__file__).parents[2].glob("**/*.md"))
    pages = [page for page in pages if not {".venv", "node_modules"} & set(page.parts)]
    tokenizer = byte_tokenizer()
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    kept = len(text) * 9 // 10
    ids = torch.tensor(tokenizer(text[:kept])["input_ids"])
    unread = text[kept:]
    step = (len(unread) - PROMPT) // PASSAGES
    prompts = [unread[start : start + PROMPT] for start in range(0, PASSAGES * step, step)]
    model = learned_target(ids, target_steps)
    config = head_config(
        DFLASH, model.config, feature_layers=LAYERS, block_size=BLOCK, mask_token_id=VOCABULARY - 1, num_layers=2
    )
    heads = {"random": make_head(config), "trained": make_head(config)}
    for head in heads.values():
        head.bind(model.get_input_embeddings().weight, model.get_output_embeddings().weight)
        begin(head)
    learn(heads["trained"], model, ids, head_steps)
    target = TargetModel(model, tokenizer, "tiny").with_feature_layers(LAYERS)
    for kind, head in heads.items():
        for sampling, shapes in taus(target, head.bind(target.embedding, target.output_weight), prompts).items():
            cells = " | ".join(f"{tau:.2f} ± {half:.2f}" for tau, half in shapes.values())
            print(f"| {kind}, {sampling} | {cells} |", flush=True)  # noqa: T201


if __name__ == "__main__":
    typer.run(main)
