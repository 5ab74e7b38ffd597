"""Bytes and characters of a text that may not be valid UTF-8."""

import codecs


def characters_of_bytes(data: bytes) -> list[int]:
    """Return the index of the character that each byte belongs to, by Python's decoder of the whole text."""
    invalid = []

    def replaced(error: UnicodeDecodeError) -> tuple[str, int]:
        invalid.append((error.start, error.end))
        return "\ufffd", error.end

    codecs.register_error("tests.recorded", replaced)
    data.decode("utf-8", "tests.recorded")
    lengths, at = [], 0
    for start, end in [*invalid, (len(data), len(data))]:
        lengths += [len(character.encode()) for character in data[at:start].decode()] + [end - start] * (end > start)
        at = end
    return [index for index, length in enumerate(lengths) for _ in range(length)]
