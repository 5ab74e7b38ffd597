"""First weights of a head, and texts that are held out from training."""

import json

import pytest
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
from jakiro.heads.jakiro.network import JakiroHead
from jakiro.loading.registry import manifest_of
from jakiro.training.corpus import Row
from jakiro.training.split import (
    add_minutes,
    held_out_rows,
    in_order_of_content,
    refuse_rows_that_were_learned,
    row_hash,
    write_manifest,
)
from jakiro.training.start import check_output_function, head_config

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
def test_targets_with_scaled_capped_or_shifted_logits_are_refused(model):
    model = model().eval()
    with pytest.raises(ValueError, match=f"{model.config.model_type} scales, caps or shifts its logits"):
        check_output_function(model)


def test_head_uses_the_rotary_settings_of_full_attention():
    model = Gemma3ForCausalLM(Gemma3TextConfig(**SIZES)).eval()
    check_output_function(model)
    config = head_config(JAKIRO, model.config, 12)
    assert config.rope_parameters == dict(model.config.rope_parameters["full_attention"])
    assert misfits(config, model.config) == []
    JakiroHead(config)


ROWS = [Row([number, number + 1, 7], "magpie", number % 2 / 2, 2, 1) for number in range(40)]


def test_learned_rows_are_not_held_out_when_a_corpus_grows():
    before, after = in_order_of_content(ROWS[:20]), in_order_of_content(ROWS)
    assert in_order_of_content(ROWS[19::-1]) == before
    learned = {row_hash(row) for row in before[5:]}
    assert not learned & {row_hash(row) for row in after[:5]}
    assert in_order_of_content(ROWS, max_tokens=31) == after[:10]


def test_manifest_counts_rows_and_names_held_out_ones(tmp_path):
    rows = in_order_of_content([*ROWS, Row([1, 2, 3, 4], "gsm8k", 1.0, 3, 3)])
    write_manifest(tmp_path, rows, 5, "tiny")
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["held_out"] == [row_hash(row)[:16] for row in rows[:5]]
    assert manifest["counts"] == {"rows": 41, "tokens": 124, "learned_tokens": 81}
    assert manifest["kinds"]["gsm8k"] == {"rows": 1, "tokens": 4, "learned_tokens": 1}
    assert "minutes" not in manifest_of(tmp_path)
    add_minutes(tmp_path, 18.04)
    assert manifest_of(tmp_path)["minutes"] == 18.0 and manifest_of(tmp_path / "none") == {}
    assert json.loads((tmp_path / "manifest.json").read_text()) == manifest | {"minutes": 18.0}
    assert manifest["temperatures"] == {"0.0": 20, "0.5": 20, "1.0": 1}


def test_held_out_rows_are_those_of_the_manifest(tmp_path):
    rows = in_order_of_content(ROWS)
    write_manifest(tmp_path, rows, 5, "tiny")
    assert held_out_rows(tmp_path, ROWS, 100) == rows[:5] and held_out_rows(tmp_path, ROWS, 2) == rows[:2]
    with pytest.raises(
        ValueError, match=r"None of these 35 rows is among the 5 that .* lists as held out; use the corpus"
    ):
        held_out_rows(tmp_path, rows[5:], 100)
    with pytest.raises(ValueError, match="among the 0 that"):
        held_out_rows(tmp_path / "no-manifest", rows, 100)


def test_rows_that_an_initial_head_may_have_learned_are_not_held_out(tmp_path, caplog):
    rows = in_order_of_content(ROWS)
    write_manifest(tmp_path, rows, 5, "tiny")
    refuse_rows_that_were_learned(tmp_path, rows, 5)
    with pytest.raises(ValueError, match=r"trained on 3 of the 8 .* held out 5 .*; give --validation-rows 5 or fewer"):
        refuse_rows_that_were_learned(tmp_path, rows, 8)
    with pytest.raises(ValueError, match="give more text"):
        refuse_rows_that_were_learned(tmp_path, rows[5:], 8)
    assert not caplog.text
    refuse_rows_that_were_learned(tmp_path / "foreign", rows, 8)
    assert "lists no held-out rows" in caplog.text
