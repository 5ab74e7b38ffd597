"""Programs around the page: shipped recordings, handouts, pictures, and a crowd of visitors."""
