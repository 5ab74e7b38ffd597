"""Growth of a tree from one pass that predicts each level independently of the tokens of other levels.

All nodes of a level have the same children, so the tree is the best part of a Cartesian product of lists.
"""

from jakiro.drafters.base import Proposal, Proposer
from jakiro.drafters.tree_growth import Children, TreeGrower


def row_proposers(start: str, label: str, sentence: str, count: int) -> tuple[Proposer, ...]:
    """Return a proposer for each of `count` rows; `sentence` may contain {number}."""
    return tuple(
        Proposer(f"{start}_{number}", f"{label} {number}", sentence.format(number=number))
        for number in range(1, count + 1)
    )


class ProductGrower(TreeGrower):
    """Grows trees from the rows of the root's output, which has one row per level, the first level first.

    The proposer of a candidate is the row of its level.
    """

    by_level = True

    def grow(self) -> Proposal:
        """Return the tree of the best nodes; no pass is needed."""
        rows = self._scaled(self.outputs[0].features[0][: self.depth])
        self._add(self._children(rows[:1], 1))
        frontier = self._worth_expanding(self.numbers[: self.width])
        for depth in range(2, rows.shape[0] + 1):
            count = frontier.shape[0]
            if not count:
                break
            # All nodes above have the same children
            shared = Children(*(column.expand(count, -1) for column in self._children(rows[depth - 1 : depth], depth)))
            self._add(shared, frontier, self._same(0, frontier))
            frontier = self._worth_expanding(self._best(self.levels[-1]))
        return self._select()
