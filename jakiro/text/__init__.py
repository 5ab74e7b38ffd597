"""Token ids to bytes and text, stop strings, messages and chat templates. Imports no torch."""

from jakiro.text.arguments import (
    check_template_arguments,
    merge_template_arguments,
    read_arguments,
    set_template_arguments,
    with_default_arguments,
)
from jakiro.text.chat import encode_messages, find_omitted_messages, render_messages
from jakiro.text.messages import ROLES, as_messages, join_text_parts
from jakiro.text.stop_strings import UntilStop
from jakiro.text.tokens import IncrementalDecoder, TokenText
