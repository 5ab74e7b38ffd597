"""What goes wrong, told on stderr in one red sentence: whose matter it is, and what to do."""

import traceback

from jakiro.cli.loading import say
from jakiro.drafters.registry import find_external_line
from jakiro.system import is_out_of_memory

INPUT, OURS = 2, 1


def tell(error: Exception, debug: bool) -> int:
    """Prints the sentence, before it the traceback where that was asked for; returns the exit code."""
    sentence, code = _sentence(error)
    if debug:
        traceback.print_exception(error)
    say(sentence, "red")
    return code


def _sentence(error: Exception) -> tuple[str, int]:
    if is_out_of_memory(error) and not isinstance(error, ValueError):
        return "Memory ran out; choose a smaller model, another dtype, or a shorter answer.", INPUT
    if isinstance(error, ModuleNotFoundError):
        return f"This needs the package {error.name}, which is not installed; run “pip install {error.name}”.", INPUT
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'A file'}: {error.strerror}.", INPUT
    if isinstance(error, (ValueError, OSError)):
        return str(error), INPUT
    location = find_external_line(error)
    if location is not None:
        path, line = location
        return (
            f"The drafting method in {path}, line {line}, failed ({type(error).__name__}: {error}). Correct it, or "
            "leave out its module in --methods-from."
        ), INPUT
    return (
        f"This is a fault of Jakiro, not of your input ({type(error).__name__}: {error}). Please report it in the "
        "issues of the repository that this copy comes from, with what the same command shows with --debug."
    ), OURS
