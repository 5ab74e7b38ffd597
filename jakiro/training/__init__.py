"""Training of draft heads: corpora, features, the training loop, calibration and evaluation."""
