"""A GGUF file's quantised weights in 16 bits.

The numbers are those that our own target computes with: what the file's blocks stand for, rounded to bfloat16. The
embedded default's are float16 numbers too; which of the two llama.cpp multiplies faster depends on the processor.
"""

from pathlib import Path

from jakiro.system import atomic_file, processor_features


def widened_kind() -> str:
    """The kind of 16 bits that suits this processor: bfloat16 where it has units for it."""
    units = {"avx512_bf16", "amx_bf16", "bf16"} & set(processor_features().split())
    return "bf16" if units else "f16"


def widen(source: Path, target: Path, kind: str) -> None:
    """Writes `target`: every matrix in 16 bits, every vector in 32, everything else as in `source`.

    Args:
        kind: "bf16" or "f16".

    Raises:
        ValueError: a number does not fit into float16.
    """
    import gguf
    import numpy as np

    numbers = gguf.GGMLQuantizationType
    stored = {"bf16": numbers.BF16, "f16": numbers.F16}[kind]
    reader = gguf.GGUFReader(source)
    with atomic_file(target) as path:
        writer = gguf.GGUFWriter(path, reader.get_field("general.architecture").contents())
        for field in reader.fields.values():
            if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
                continue
            items = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], items)
        writer.add_file_type({"bf16": gguf.LlamaFileType.MOSTLY_BF16, "f16": gguf.LlamaFileType.MOSTLY_F16}[kind])
        for tensor in reader.tensors:
            exact = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            rounded = gguf.quants.dequantize(gguf.quants.quantize(exact, numbers.BF16), numbers.BF16)
            if rounded.ndim < 2:
                writer.add_tensor(tensor.name, rounded)
                continue
            with np.errstate(over="ignore"):
                narrow = gguf.quants.quantize(rounded, stored)
            if not np.array_equal(gguf.quants.dequantize(narrow, stored), rounded):
                raise ValueError(f"{tensor.name} of {source.name} does not fit into float16; use the kind bf16.")
            writer.add_tensor(tensor.name, narrow, raw_dtype=stored)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
