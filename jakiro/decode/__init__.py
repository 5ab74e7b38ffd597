"""One answer being decoded: the loop over steps, its passes, its clock and its record, and how large trees grow."""
