"""What is measured by hand, on a quiet machine: the page, chats, prompts, starts, programs beside ours, and a GPU."""
