"""Heads in 8 bits, and shipped heads: their files are small and match their manifests."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from jakiro.heads.card import CARD_NAME
from jakiro.heads.checkpoint import WEIGHTS_NAME, load_head, save_head, weights_file
from jakiro.heads.export import MANIFEST_NAME
from jakiro.heads.kinds import KINDS
from jakiro.heads.rounded import restored, rounded_to_int8
from jakiro.loading import registry
from jakiro.system import file_sha256
from tests.support import tiny_head, tiny_target

# The shipped heads of the package's own kinds
SHIPPED = [name for name in registry.head_names() if registry.config_of(name).kind in KINDS]


def test_rounding_error_is_at_most_half_a_step_of_row_and_column():
    sizes = torch.logspace(-3, 3, 96)
    matrix = torch.randn((64, 96), generator=torch.Generator().manual_seed(1)) * sizes
    matrix[5] = 0
    stored = rounded_to_int8({"experts": matrix, "fc.weight": matrix, "norm": sizes})
    assert stored["experts"].dtype == torch.int8 and stored["fc.weight"] is matrix and stored["norm"] is sizes
    again = restored(stored)
    assert again.keys() == {"experts", "fc.weight", "norm"}
    steps = stored["experts.scales"][:, None] * stored["experts.exponents"].float().exp2()
    assert ((again["experts"] - matrix).abs() <= 0.5001 * steps).all()
    # Small columns are as exact as large ones; a scale per row only would not ensure this
    assert ((again["experts"] - matrix).norm(dim=0) / matrix.norm(dim=0)).max() < 0.02


def test_8_bit_matrix_without_its_scales_is_refused(tmp_path):
    save_head(tiny_head(tiny_target()), tmp_path, bits=8)
    tensors = load_file(tmp_path / WEIGHTS_NAME)
    name = next(name for name, tensor in tensors.items() if tensor.dtype == torch.int8 and name.endswith("weight"))
    del tensors[name + ".scales"]
    save_file(tensors, tmp_path / WEIGHTS_NAME)
    with pytest.raises(ValueError, match=rf"8-bit matrix {name} needs \d+ scales and \d+ exponents; download"):
        load_head(tmp_path)


LARGEST = 9_500_000


@pytest.mark.anywhere
@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_head_is_small_and_matches_its_manifest(name, tmp_path):
    folder = registry.resolve(head=name).head_folder()
    manifest, head = json.loads((folder / MANIFEST_NAME).read_text(encoding="utf-8")), load_head(folder)
    assert weights_file(folder).stat().st_size <= LARGEST
    assert manifest["sha256"] == file_sha256(weights_file(folder))
    assert head.config.target_sha256 == registry.ENTRIES[head.config.target_name].target_sha256
    card = (folder / CARD_NAME).read_text(encoding="utf-8")
    assert "Apache-2.0" in card and "minutes" in card and "τ" in card
    for bits in (8, 16):
        save_head(head, tmp_path / str(bits), bits)
    small, large = ((tmp_path / bits / WEIGHTS_NAME).stat().st_size for bits in ("8", "16"))
    assert small < 0.62 * large
    # Saving in 16 bits, to continue training, keeps each number to half of its last bit
    again = load_head(tmp_path / "16").state_dict()
    for key, tensor in head.state_dict().items():
        torch.testing.assert_close(again[key], tensor, atol=1e-6, rtol=1e-3)
