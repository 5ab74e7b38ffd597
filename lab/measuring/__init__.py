"""What is measured by hand, on a quiet machine: the page, chats, prompts, starts, and other programs beside them."""
