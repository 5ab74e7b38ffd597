"""Proxies from the environment: bypassed for this machine, and invalid ones reported in one sentence.

httpx, which Gradio and the Hub's client use, reads the same variables. Imports no torch.
"""

import os
from urllib.request import getproxies_environment

from jakiro.system import reason_of

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def ask_directly(*hosts: str) -> None:
    """Add the names of this machine and these hosts to `NO_PROXY`, if the environment names a proxy."""
    proxies = getproxies_environment()
    # Both spellings of NO_PROXY; lower case has priority. httpx accepts no brackets
    listed = [host.strip(" []") for host in proxies.pop("no", "").split(",") if host.strip()]
    if proxies and "*" not in listed:
        os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(dict.fromkeys([*listed, *_LOOPBACK, *hosts]))


def check_proxies() -> None:
    """Call `ask_directly` and create a client in the same way as httpx.

    Raises:
        ValueError: the client cannot be created. The message names the variables without their values, which contain
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
            f"The connection settings in {', '.join(named)} cannot be used: {reason}; correct or unset them."
        ) from error
