"""Many visitors and one model: the queue, running answers, limits, and the server around the page."""
