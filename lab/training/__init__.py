"""Training of the lab's drafts, and experiments on the training recipe."""
