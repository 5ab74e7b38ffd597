"""What heads are trained on: text that the target writes, and the target's features of it."""
