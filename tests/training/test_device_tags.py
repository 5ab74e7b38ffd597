"""Training and calibration on a simulated GPU: CPU and device tensors are never mixed."""

from contextlib import nullcontext

import pytest
import torch
from accelerate import Accelerator

from jakiro.heads.checkpoint import load_head, save_head
from jakiro.loading import loader
from jakiro.training import bound
from jakiro.training import calibrate as calibrate_module
from jakiro.training.calibrate import CalibrateConfig, calibrate
from jakiro.training.corpus import Row, write_part
from jakiro.training.losses import LossWeights, objective_for
from jakiro.training.schedule import TrainingOptions
from jakiro.training.trainer import Trainer, TrainingFolders
from jakiro.training.validation import agreement, held_out
from tests import support
from tests.device_tags import PRETENDED, DeviceTags
from tests.marks import rarely
from tests.support import byte_tokenizer, tiny_model
from tests.training.tiny import tiny_cache, tiny_head, tiny_target

CPU = torch.device("cpu")


@pytest.fixture
def cache(tmp_path):
    return tiny_cache(tmp_path / "features", tiny_target())


def head_on(device: torch.device, fusion: str):
    """Return the tiny head and the target's output rows; on the simulated device only inside `DeviceTags`."""
    target = tiny_target()
    embedding, output_weight = (layer.weight.to(device) for layer in (target.get_input_embeddings(), target.lm_head))
    return tiny_head(target, fusion, draft_vocab=30).to(device).bind(embedding, output_weight), output_weight


def test_device_tag_mode_rejects_operations_that_a_gpu_rejects():
    with DeviceTags():
        ours, index = torch.ones(3, 3).to(PRETENDED), torch.tensor([0, 2])
        assert (ours.device, (ours + torch.tensor(1.0)).device, ours[index].device) == (PRETENDED,) * 3
        assert ours.cpu().device == torch.zeros(2).device == CPU
        assert torch.zeros(2, device="cuda").is_cuda and ours.new_zeros(2).is_cuda and ours.T.double().is_cuda
        for mixed in (
            lambda: ours + torch.ones(3),
            lambda: torch.zeros(3)[index.to(PRETENDED)],
            lambda: torch.cat([ours, torch.ones(3, 3)]),
            lambda: torch.empty_like(ours).exponential_(generator=torch.Generator()),
        ):
            with pytest.raises(RuntimeError, match=r"CPU|generator"):
                mixed()
        with pytest.raises(TypeError, match="numpy"):
            ours.numpy()


@pytest.mark.rare
def test_device_tag_head_is_recalibrated_on_the_device_of_the_target(tmp_path, monkeypatch):
    target, corpus = support.tiny_target(), tmp_path / "part-00000.jsonl.gz"
    generator = torch.Generator().manual_seed(0)
    texts = torch.randint(0, 250, (4, 14), generator=generator).tolist()
    write_part(corpus, [Row(ids, "prompts", 0.0, 8, 8) for ids in texts])
    monkeypatch.setattr(bound, "cache_folder", lambda: tmp_path / "cache")

    def calibrate_on(device):
        monkeypatch.setattr(calibrate_module, "choose_device", lambda name: device)
        monkeypatch.setattr(calibrate_module, "target_dtype", lambda device: torch.float32)
        target_there = tiny_model().to(device), byte_tokenizer(), device.type
        monkeypatch.setattr(bound, "read_target", lambda *_: target_there)
        folder = tmp_path / device.type
        save_head(support.tiny_head(target), folder)
        config = CalibrateConfig(str(folder), (str(corpus),), target="tiny", texts=2, max_new_tokens=3, unread=True)
        return calibrate(config), load_head(folder).config.calibration

    with DeviceTags():
        shares, weights = calibrate_on(PRETENDED)
    expected_shares, expected = calibrate_on(CPU)
    assert weights == pytest.approx(expected, abs=2e-3) and shares == pytest.approx(expected_shares, abs=0.05)


@pytest.mark.parametrize("fusion", [rarely("summed"), "decoupled"])
def test_device_tag_training_is_resumed_with_its_average(cache, fusion, tmp_path, monkeypatch):
    options = TrainingOptions(max_steps=3, batch_tokens=64, num_validation=4, unroll_from=0.5, average_from=0.0)
    seen = []

    def validate(objective):
        seen.append(agreement(objective, checked, 2))
        return seen[-1]

    def trainer():
        return Trainer(head_on(PRETENDED, fusion)[0], cache, options, folders, validate=validate)

    monkeypatch.setattr(Accelerator, "device", property(lambda self: PRETENDED))
    folders = TrainingFolders(tmp_path / "out", tmp_path / "state")
    with DeviceTags():
        checked = held_out(cache, [0, 1], head_on(PRETENDED, fusion)[1])
        first = trainer()
        first._report_step = lambda parts: first.step == 2 and first.save()
        first.run()
        again = trainer()
        again.resume()
        again.step -= 1
        again.run()
        trained, weight = again.head.to(CPU), head_on(PRETENDED, fusion)[1].to(CPU)
    # Outside of the mode the same head has the same agreement
    expected = agreement(objective_for(trained, LossWeights()), held_out(cache, [0, 1], weight), 2)
    assert seen[-1] == pytest.approx(expected, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize(("in_hardware", "dtype"), [(True, torch.bfloat16), (False, torch.float16)])
def test_device_tag_cards_that_emulate_bfloat16_get_float16(monkeypatch, in_hardware, dtype):
    """On T4 and V100 `is_bf16_supported` returns True by default, but bfloat16 is emulated."""
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation or in_hardware
    )
    assert loader.choose_dtype(None, PRETENDED) is dtype


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_device_tag_rotary_frequencies_stay_float32_in_any_dtype(tmp_path, dtype):
    head = tiny_head(tiny_target())
    frequencies = head.rotary.inv_freq.clone()
    save_head(head, tmp_path)
    with DeviceTags():
        moved = head.to(PRETENDED, dtype)
        assert moved.fc.weight.dtype == dtype and moved.rotary.inv_freq.is_cuda
    for loaded in (head, load_head(tmp_path, dtype=dtype)):
        assert loaded.rotary.inv_freq.dtype == torch.float32 and torch.equal(loaded.rotary.inv_freq, frequencies)
