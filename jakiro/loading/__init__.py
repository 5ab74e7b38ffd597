"""Names to models: which target goes with which head, where both are, and how they are loaded."""
