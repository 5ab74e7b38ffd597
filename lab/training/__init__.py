"""What trained and measured the lab's drafts, on written answers."""
