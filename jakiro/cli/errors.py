"""Messages and exit codes for errors of the command line."""

import traceback

from jakiro.cli.loading import say
from jakiro.system import is_out_of_memory

INPUT_ERROR, INTERNAL_ERROR = 2, 1
# Extra of this package that installs a missing package with everything that belongs to it
EXTRAS = {"bitsandbytes": "quant", "pydantic": "api", "starlette": "api", "tensorboard": "train", "uvicorn": "api"}


def print_error(error: Exception, debug: bool) -> int:
    """Print an error to stderr: one line with the cause and the fix.

    Args:
        error: any exception that a command raised.
        debug: print the traceback first.

    Returns:
        The exit code.
    """
    message, code = _message_and_code(error)
    if debug:
        traceback.print_exception(error)
    say(message, "red")
    return code


def _message_and_code(error: Exception) -> tuple[str, int]:
    if is_out_of_memory(error) and not isinstance(error, ValueError):
        return "Memory ran out; choose a smaller model, another dtype, or a shorter answer.", INPUT_ERROR
    if isinstance(error, ModuleNotFoundError):
        extra = EXTRAS.get(error.name or "")
        command = f"pip install '.[{extra}]'” in the checkout" if extra else f"pip install {error.name}”"
        return f"This needs the package {error.name}, which is not installed; run “{command}.", INPUT_ERROR
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'A file'}: {error.strerror}.", INPUT_ERROR
    if isinstance(error, (ValueError, OSError)):
        return str(error), INPUT_ERROR
    # Imports torch, which takes seconds
    from jakiro.drafters.registry import find_external_line

    location = find_external_line(error)
    if location is not None:
        path, line = location
        return (
            f"The drafting method in {path}, line {line}, failed ({type(error).__name__}: {error}). Correct it, or "
            "leave out its module in --methods-from."
        ), INPUT_ERROR
    return (
        f"This is a fault of Jakiro, not of your input ({type(error).__name__}: {error}). Please report it in the "
        "issues of the repository, with the output of the same command and --debug."
    ), INTERNAL_ERROR
