"""How a head is trained: where it starts, its losses, the optimizer and the loop."""
