"""A straight line through recent pairs of numbers, plain floats."""

MEMORY = 0.97


class Trend:
    """How y rises with x, by least squares over recent pairs.

    Args:
        slope: before anything was seen. weight: sum of squared distances from the mean x that this guess stands for.
    """

    def __init__(self, slope: float, weight: float) -> None:
        self._guess, self._weight = slope, weight
        self._count = self._mean_x = self._mean_y = self._xx = self._xy = 0.0

    def observe(self, x: float, y: float) -> None:
        self._count = MEMORY * self._count + 1
        ahead = x - self._mean_x
        self._mean_x += ahead / self._count
        self._mean_y += (y - self._mean_y) / self._count
        self._xx = MEMORY * self._xx + ahead * (x - self._mean_x)
        self._xy = MEMORY * self._xy + ahead * (y - self._mean_y)

    @property
    def slope(self) -> float:
        return (self._guess * self._weight + self._xy) / (self._weight + self._xx)

    def rise(self, x: float) -> float:
        """By how much y is expected to differ from its mean at this x; 0 before anything was seen."""
        return self.slope * (x - self._mean_x) if self._count else 0.0
