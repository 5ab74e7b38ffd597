"""Proxies that the environment names: one's own machine is never asked through them; an unusable one is a sentence.

httpx, which Gradio and the Hub's client use, reads the same variables. Imports no torch.
"""

import os
from urllib.request import getproxies_environment

from jakiro.system import reason_of

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def ask_directly(*hosts: str) -> None:
    """Adds this machine's own names, and these hosts, to `NO_PROXY`, where the environment names a proxy."""
    proxies = getproxies_environment()
    # What both spellings of NO_PROXY say, of which the small one wins; httpx takes no brackets
    listed = [host.strip(" []") for host in proxies.pop("no", "").split(",") if host.strip()]
    if proxies and "*" not in listed:
        os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(dict.fromkeys([*listed, *_LOOPBACK, *hosts]))


def check_proxies() -> None:
    """Calls `ask_directly`, and makes a client as httpx would.

    Raises:
        ValueError: it cannot be made; the variables that may say why are named, without their values, which hold
            passwords.
    """
    import httpx

    ask_directly()
    try:
        httpx.Client().close()
    except (ImportError, OSError, ValueError, httpx.InvalidURL) as error:
        reason = "it is no address" if isinstance(error, httpx.InvalidURL) else reason_of(error)
        ending = ("CERT_FILE", "CERT_DIR") if isinstance(error, OSError) else "_PROXY"
        named = sorted(name for name, value in os.environ.items() if value and name.upper().endswith(ending))
        raise ValueError(
            f"No connection can be made with what is in {', '.join(named)}: {reason}; correct it or unset it."
        ) from error
