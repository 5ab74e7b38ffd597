import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GraniteConfig,
    GraniteForCausalLM,
    PhiConfig,
    PhiForCausalLM,
)

from jakiro.heads.checkpoint import misfits
from jakiro.heads.jakiro import JAKIRO
from jakiro.heads.layer_head import LayerHead
from jakiro.training.start import check_output_function, head_config
from tests.training.tiny import start, tiny_cache, tiny_head, tiny_target

SIZES = {
    "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 64,
}  # fmt: skip
NO_HEAD_DIM = {name: value for name, value in SIZES.items() if name != "head_dim"}


@pytest.mark.parametrize(
    "model",
    [
        lambda: GraniteForCausalLM(GraniteConfig(**NO_HEAD_DIM, logits_scaling=8.0)),
        lambda: Gemma2ForCausalLM(Gemma2Config(**SIZES, final_logit_softcapping=5.0)),
        lambda: PhiForCausalLM(PhiConfig(**NO_HEAD_DIM)),
    ],
    ids=["scaled", "capped", "shifted"],
)
def test_targets_whose_logits_are_more_than_a_product_are_refused_by_name(model):
    model = model().eval()
    with pytest.raises(ValueError, match=f"{model.config.model_type} scales, caps or shifts its logits"):
        check_output_function(model)


def test_a_family_with_two_rotary_settings_gives_the_head_those_of_full_attention():
    model = Gemma3ForCausalLM(Gemma3TextConfig(**SIZES)).eval()
    check_output_function(model)
    config = head_config(JAKIRO, model.config, 12)
    assert config.rope_parameters == dict(model.config.rope_parameters["full_attention"])
    assert misfits(config, model.config) == []
    LayerHead(config)


def test_a_head_of_the_other_fusion_keeps_the_stream_and_gets_experts_that_fit_it(tmp_path):
    target = tiny_target()
    cache = tiny_cache(tmp_path, target)
    source, head = tiny_head(target, "summed"), tiny_head(target, "decoupled")
    start(source, cache)
    with torch.no_grad():
        source.layers[0].self_attn.o_proj.weight.normal_(std=0.02)
    start(head, cache, source, seed=1)
    batch = cache.batch([0])
    features = batch.features[:, 1:]
    with torch.no_grad():
        inputs = (head.embed(batch.ids[:, 1:]), batch.features[:, :-1], torch.arange(features.shape[1])[None])
        ours, theirs = head(*inputs), source(*inputs)
    assert torch.equal(ours.residual, theirs.residual)
    for expert in range(2):
        left = (ours.features[expert] - features).square().mean()
        assert left < 0.9 * (ours.residual - features).square().mean()
    assert not torch.equal(ours.features[0], ours.features[1])
