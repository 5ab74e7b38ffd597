"""Names to a ready generator: resolves a pair, loads both models, checks that they belong together."""

import torch

from jakiro import zoo
from jakiro.budget import DeviceProfile
from jakiro.draft.checkpoint import WEIGHTS_NAME, file_sha256, load_head
from jakiro.drafting import HeadDrafter
from jakiro.generate import JakiroGenerator
from jakiro.profile import load_or_measure
from jakiro.target import NUMERICS, TargetModel

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load_generator(
    target: str | None, head: str | None, device: str | None, dtype: str | None, numerics: str | None
) -> JakiroGenerator:
    """See `JakiroGenerator.from_pretrained`."""
    chosen_device = choose_device(device)
    chosen_dtype = choose_dtype(dtype, chosen_device)
    numerics = numerics or "exact"
    if numerics not in NUMERICS:
        raise ValueError(f"Numerics must be one of {', '.join(NUMERICS)}; you gave {numerics!r}.")
    pair = zoo.resolve(target, head)
    model, tokenizer, sha256 = zoo.load_target(pair.target_name, chosen_device, chosen_dtype)
    target_model = TargetModel(model, tokenizer, pair.target_name, sha256, numerics)
    notices = []
    if not getattr(tokenizer, "chat_template", None):
        notices.append("This model has no chat template; a plain dialogue form is used.")
    if pair.head_path is None:
        notices.append("No draft head fits this model, so only plain decoding is available.")
        return JakiroGenerator(target_model, None, None, notices)
    draft_head = load_head(pair.head_path, chosen_device, chosen_dtype)
    draft_head.bind(target_model.embedding, target_model.output_weight).pack()
    warning = zoo.head_warning(pair.head_name, draft_head.config.target_sha256, pair.target_name, sha256)
    if warning:
        notices.append(warning)
    description = {"name": pair.head_name, "sha256": file_sha256(pair.head_path / WEIGHTS_NAME)}
    drafter = HeadDrafter(draft_head)

    def measure() -> DeviceProfile:
        return load_or_measure(target_model, drafter, description["sha256"], zoo.cache_folder() / "profiles")

    return JakiroGenerator(target_model, drafter, description, notices, measure)


def choose_device(device: str | None) -> torch.device:
    """The asked device, or a GPU where there is one.

    Raises:
        ValueError: no such device here.
    """
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"Unknown device {device!r}; use “cpu” or “cuda”.") from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("Device “cuda” was asked for, but no GPU is visible here; use “cpu”.")
    return chosen


def choose_dtype(dtype: str | None, device: torch.device) -> torch.dtype:
    """The asked dtype, or bfloat16 where the device computes it in hardware, else float32.

    Raises:
        ValueError: an unknown dtype.
    """
    if dtype is not None:
        if dtype not in DTYPES:
            raise ValueError(f"Unknown dtype {dtype!r}; choose one of {', '.join(DTYPES)}.")
        return DTYPES[dtype]
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    return torch.bfloat16 if torch.ops.mkldnn._is_mkldnn_bf16_supported() else torch.float32
