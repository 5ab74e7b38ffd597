"""What a trained head is worth: calibration, agreement with the target, τ on written answers."""
