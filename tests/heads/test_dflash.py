"""DFlash: logits of the published code, of speculators and of transformers' drafter, and trees of a block's rows."""

import heapq
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import GenerationConfig, MuseGlimmerAssistantConfig, MuseGlimmerAssistantModel
from transformers.generation.candidate_generator import DFlashTokenCandidateGenerator
from transformers.modeling_outputs import CausalLMOutput

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.noise import KeyedNoise
from jakiro.core.tree import ancestor_mask
from jakiro.drafters.base import DraftRequest
from jakiro.drafters.dflash import block_drafter
from jakiro.heads.checkpoint import load_head, misfits, save_head
from jakiro.heads.config import named_target
from jakiro.heads.dflash.learn import levels
from jakiro.models.target import TargetModel
from tests.heads.golden import paths
from tests.heads.test_eagle3 import with_last_state
from tests.heads.test_foreign import write_folder
from tests.support import TOKENIZER_SIZE, byte_tokenizer, committed, prompt_of, tiny_head, tiny_model, tiny_target

DATA = Path(__file__).parents[1] / "data"
CASE = json.loads((DATA / "dflash_cases.json").read_text(encoding="utf-8"))["dflash_0"]["config"]
SPECULATORS = sorted(path.name for path in (DATA / "speculators_dflash").iterdir())
CLOSE = {"atol": 1e-4, "rtol": 1e-4}


def golden_head(tmp_path, **values):
    """Return the head of the published figures, loaded from a folder in z-lab's format."""
    folder = write_folder(tmp_path, load_file(DATA / "dflash_0_weights.safetensors"), CASE | values)
    target = load_file(DATA / "dflash_0_target.safetensors")
    return load_head(folder).bind(target["model.embed_tokens.weight"], target["lm_head.weight"])


def drafted_logits(session, depth: int) -> torch.Tensor:
    """Return the logits of the block after the observed tokens.

    Returns:
        (levels, vocab_size) float32.
    """
    session.catch_up()
    session._reserve(session.head.drafted_rows)
    with torch.no_grad():
        logits = session.head.logits(session.head.block(session._root_token, session.cache).features[0])
    session.cache.keep(session.cache.length - session.head.config.block_size)
    return logits[:depth]


def rounds(head, golden, size):
    """Yield a session after each of the published rounds, and the name of the round."""
    session, start = None, 0
    for name in ("r0", "r1", "r2"):
        root = int(golden[f"{name}.start"])
        features = with_last_state(golden[f"{name}.context"][0], size)
        ids = torch.cat([golden["ids"][0, :root], golden[f"{name}.root"]])
        if session is None:
            session = block_drafter(head).start(prompt_of(ids, features), SamplingParams(), KeyedNoise(0))
        else:
            session.observe(committed(ids[start + 1 :], features))
        start = root
        yield session, name


def test_logits_equal_the_published_code_over_three_rounds(tmp_path):
    golden = load_file(DATA / "dflash_0_golden.safetensors")
    head = golden_head(tmp_path)
    assert head.config.layers_of(8) == (2, 4, 6) and head.levels == 5
    for session, name in rounds(head, golden, CASE["hidden_size"]):
        torch.testing.assert_close(drafted_logits(session, 5), golden[f"{name}.logits"][0], **CLOSE)
        chain = session.propose(DraftRequest(TreeConfig(width=1, depth=5, nodes=6))).tree
        assert chain.token_ids[1:].tolist() == golden[f"{name}.logits"][0].argmax(-1).tolist()
        assert chain.parents.tolist() == [-1, 0, 1, 2, 3, 4]


def best_first(logits: torch.Tensor, nodes: int) -> set[tuple[int, ...]]:
    """Return the paths of the best nodes of the product of the rows' distributions, with DDTree's search."""
    logs = logits.log_softmax(-1)
    ranked = logs.sort(descending=True)
    heap, best = [(0.0, ())], set()
    while len(best) < nodes:
        cost, ranks = heapq.heappop(heap)
        best.add(tuple(int(ranked.indices[level, rank]) for level, rank in enumerate(ranks)))
        if len(ranks) < len(logs):
            heapq.heappush(heap, (cost - float(ranked.values[len(ranks), 0]), (*ranks, 0)))
        if ranks and ranks[-1] + 1 < logs.shape[1]:
            level, rank = len(ranks) - 1, ranks[-1]
            step = float(ranked.values[level, rank] - ranked.values[level, rank + 1])
            heapq.heappush(heap, (cost + step, (*ranks[:-1], rank + 1)))
    return best


@pytest.mark.parametrize("nodes", [8, 16, 32])
def test_trees_have_the_best_nodes_of_the_product_of_marginals(nodes, tmp_path):
    golden = load_file(DATA / "dflash_0_golden.safetensors")
    for session, name in rounds(golden_head(tmp_path), golden, CASE["hidden_size"]):
        tree = session.propose(DraftRequest(TreeConfig(width=nodes, depth=5, nodes=nodes))).tree
        ours = paths(tree.token_ids.tolist(), ancestor_mask(tree.parents, tree.max_depth), tree.depths.tolist())
        assert {path[1:] for path in ours} == best_first(golden[f"{name}.logits"][0], nodes)


@pytest.mark.parametrize("name", SPECULATORS)
def test_logits_equal_speculators(name):
    """Compare two blocks of a text, each after its own prefix, with the masks of the original code."""
    folder = DATA / "speculators_dflash" / name
    head, golden = load_head(folder), load_file(folder / "golden.safetensors")
    assert named_target(json.loads((folder / "config.json").read_text(encoding="utf-8"))) == "somebody/target"
    assert head.config.layers_of(8) == (1, 2)
    head.bind(golden["embed_tokens"], golden["embed_tokens"])
    if head.lm_head is None:
        head.output_weight = golden["lm_head"]
    ids, features = golden["input_ids"][0], with_last_state(golden["hidden_states"][0], 16)
    for root, expected in zip(golden["roots"].tolist(), golden["logits"], strict=True):
        prompt = prompt_of(ids[: root + 1], features[:root])
        session = block_drafter(head).start(prompt, SamplingParams(), KeyedNoise(0))
        torch.testing.assert_close(drafted_logits(session, 9), expected[-head.levels :], **CLOSE)
    # Over the whole text, as in calibration
    along = torch.cat(list(levels(head, ids[None], features[None, :-1])))
    for root, expected in zip(golden["roots"].tolist(), golden["logits"], strict=True):
        rows = torch.stack([along[level, root - 1 + level] for level in range(head.levels)])
        torch.testing.assert_close(head.logits(rows), expected[-head.levels :], **CLOSE)


WINDOW = 6
# Fields at the top level of z-lab's config
FORMS = {
    "full": {"layer_types": ["full_attention"] * 2},
    "sliding": {
        "layer_types": ["sliding_attention", "full_attention"], "sliding_window": WINDOW, "use_sliding_window": True,
        "is_causal": False,
    },
}  # fmt: skip


def transformers_drafter(form: str) -> MuseGlimmerAssistantModel:
    """Return transformers' own DFlash network with random weights, for a tiny target with eight layers."""
    torch.manual_seed(7)
    config = MuseGlimmerAssistantConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, rms_norm_eps=1e-6, rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        max_position_embeddings=256, block_size=6, mask_token_id=TOKENIZER_SIZE - 1, target_layer_ids=[1, 4, 7],
        # transformers' window includes a row at this distance, z-lab's does not
        layer_types=FORMS[form]["layer_types"], sliding_window=WINDOW - 1,
    )  # fmt: skip
    model = MuseGlimmerAssistantModel(config).eval().requires_grad_(False)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.normal_(std=0.15)
    return model


def as_zlab(model: MuseGlimmerAssistantModel, form: str) -> tuple[dict, dict]:
    """Return config and tensors of the same head with z-lab's names; it also reads the last layer."""
    config = model.config
    names = {"encoder.fc": "fc", "encoder.output_norm_enc": "hidden_norm"}
    tensors = {}
    for name, tensor in model.state_dict().items():
        module, _, last = name.rpartition(".")
        tensors[f"{names.get(module, module)}.{last}"] = tensor
    fields = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    values = {name: getattr(config, name) for name in (*fields, "head_dim", "rms_norm_eps", "max_position_embeddings")}
    about = {"target_layer_ids": config.target_layer_ids, "mask_token_id": config.mask_token_id}
    return values | FORMS[form] | {
        "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "vocab_size": TOKENIZER_SIZE,
        "rope_theta": 10000.0, "block_size": config.block_size, "num_target_layers": 8, "dflash_config": about,
    }, tensors  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_logits_and_chains_equal_the_drafter_of_transformers(form, tmp_path):
    """Run `DFlashTokenCandidateGenerator` for three rounds; each drafter reads the target's states in its own way."""
    stock, drafter = tiny_model(layers=8), transformers_drafter(form)
    theirs = DFlashTokenCandidateGenerator(
        drafter, stock.get_input_embeddings(), stock.get_output_embeddings(), GenerationConfig(max_length=200)
    )
    ids = torch.randint(0, 250, (1, 40), generator=torch.Generator().manual_seed(1))
    # Transformers 5.17 counts layers without the embedding, later ones with it
    counted_from = theirs.model_kwargs_overrides["output_hidden_states"][0] - drafter.config.target_layer_ids[0]
    states = stock(ids, output_hidden_states=True).hidden_states[1 - counted_from :]
    theirs.get_candidates(ids[:, :15], {}, None, True, 0)
    head = load_head(write_folder(tmp_path / "head", *reversed(as_zlab(drafter, form))))
    assert head.config.reads_last and head.config.layers_of(8) == (2, 5)
    target = TargetModel(tiny_model(layers=8), byte_tokenizer(), "tiny", numerics="fast").with_feature_layers((2, 5))
    head.bind(target.embedding, target.output_weight)
    features, _ = target.prefill(ids[0], target.new_cache(60))
    session, num_read = None, 0
    for end in (14, 17, 21):
        prefix = ids[:, : end + 1]
        options = {"position_ids": torch.arange(end + 1)[None], "attention_mask": torch.ones_like(prefix)}
        new_states = tuple(state[:, num_read:end] for state in states)
        candidates, expected = theirs.get_candidates(
            prefix, options, CausalLMOutput(hidden_states=new_states), False, end - num_read - 1
        )
        if session is None:
            session = block_drafter(head).start(prompt_of(prefix[0], features[:end]), SamplingParams(), KeyedNoise(0))
        else:
            session.observe(committed(ids[0, num_read + 1 : end + 1], features[num_read:end]))
        num_read = end
        torch.testing.assert_close(drafted_logits(session, 5), expected[0], **CLOSE)
        chain = session.propose(DraftRequest(TreeConfig(width=1, depth=5, nodes=6))).tree
        assert chain.token_ids.tolist() == candidates[0, end:].tolist()


def test_sliding_layers_of_zlab_files_are_causal_by_default(tmp_path):
    sliding = FORMS["sliding"] | {"layer_types": ["full_attention", "sliding_attention"]}
    del sliding["is_causal"]
    for number, (values, causal) in enumerate({"": (1,), "is_causal": (0, 1)}.items()):
        fields = sliding | ({values: True} if values else {})
        config = golden_head(tmp_path / str(number), **fields).config
        assert (config.sliding_layers, config.causal_layers, config.sliding_window) == ((1,), causal, WINDOW)


def test_block_size_and_default_layers_of_dflash_config_are_read(tmp_path):
    about = {"mask_token_id": 119, "block_size": 6}
    tensors = load_file(DATA / "dflash_0_weights.safetensors")
    tensors["fc.weight"] = tensors["fc.weight"][:, :96].contiguous()
    values = {name: value for name, value in CASE.items() if name != "block_size"} | {"dflash_config": about}
    config = load_head(write_folder(tmp_path / "head", tensors, values)).config
    assert config.block_size == 6 and config.feature_layers == (2, 6)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"dflash_config": CASE["dflash_config"] | {"output_multiplier": 2.0}}, "says output_multiplier = 2.0, Jakiro"),
        ({"block_size": None}, "has no block_size"),
        ({"dflash_config": {"mask_token_id": 200, "target_layer_ids": [1, 3, 5]}}, "must be a token of 120, not 200"),
        ({"dflash_config": {"mask_token_id": 1, "target_layer_ids": [5, 3, 1]}}, "must be ascending numbers"),
        ({"dflash_config": {"mask_token_id": 1, "target_layer_ids": [1, 3]}}, "tensor fc.weight has shape"),
    ],
)
def test_unsupported_config_values_are_refused(values, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        golden_head(tmp_path, **values)


def test_head_loads_from_our_format_and_names_layers_that_the_target_lacks(tmp_path):
    head = tiny_head(tiny_target().with_feature_layers((1,)), kind="dflash", feature_layers=(1,), block_size=6)
    save_head(head, tmp_path)
    assert load_head(tmp_path).config == head.config
    (sentence,) = misfits(tiny_head(tiny_target(), kind="dflash", feature_layers=(3,)).config, tiny_model().config)
    assert "Feature layer must be between 1 and 1; got 3. The target has 2 layers" in sentence


def test_block_fits_at_the_end_of_an_answer_with_any_tree():
    target = tiny_target().with_feature_layers((1,))
    head = tiny_head(target, kind="dflash", feature_layers=(1,), block_size=16)
    ids = torch.arange(12)
    prompt = prompt_of(ids, torch.randn(11, head.config.feature_size))
    session = block_drafter(head).start(prompt, SamplingParams(max_new_tokens=1), KeyedNoise(0))
    assert session.propose(DraftRequest(TreeConfig(width=1, depth=1, nodes=2))).tree.num_nodes == 2


CAUSAL_DFLASH = CASE["dflash_config"] | {"causal_head": True}


@pytest.mark.parametrize(
    ("values", "tensor", "words"),
    [
        ({"architectures": ["DFlash2DraftModel"]}, None, "a DFlash2 head, .* convolutions"),
        ({}, "candidate_selector.hidden_projection.weight", "a DFlash2 head, .* a selector"),
        ({}, "markov_head.markov_w1.weight", "a DSpark head, .* a Markov head"),
        ({"dflash_config": CAUSAL_DFLASH}, None, "a JetSpec head, .* a causal block"),
        ({}, "mask_hidden", "a P-EAGLE head, .* mask rows"),
        *(
            ({"speculators_model_type": name}, None, words)
            for name, words in (
                ("dflash2", "a DFlash2 head"), ("dspark", "a DSpark head"), ("peagle", "a P-EAGLE head"),
                ("mtp", "an MTP head"), ("xpress", "an XPress head"), ("novel", "the unknown kind 'novel'"),
            )
        ),
    ],
)  # fmt: skip
def test_related_kinds_of_heads_are_refused_by_name(values, tensor, words, tmp_path):
    tensors = load_file(DATA / "dflash_0_weights.safetensors") | ({} if tensor is None else {tensor: torch.ones(1)})
    with pytest.raises(ValueError, match=words):
        load_head(write_folder(tmp_path, tensors, CASE | values))
