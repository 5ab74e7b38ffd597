"""Growing a tree whose levels were all predicted in one pass, each without knowing the others' tokens.

Every node of a level has the same children, so the tree is the best part of a product of lists.
"""

from jakiro.drafters.base import Proposal, Proposer
from jakiro.drafters.tree_growth import Children, TreeGrower


def row_proposers(start: str, label: str, sentence: str, count: int) -> tuple[Proposer, ...]:
    """A proposer for each of `count` rows; `sentence` is about {number}."""
    return tuple(
        Proposer(f"{start}_{number}", f"{label} {number}", sentence.format(number=number))
        for number in range(1, count + 1)
    )


class ProductGrower(TreeGrower):
    """Grows trees from rows that are there already: the root's output has one for each level, the first level first.

    Candidates name their level's row as their proposer.
    """

    by_level = True

    def grow(self) -> Proposal:
        """Keeps the best nodes; runs no pass."""
        rows = self._scaled(self.outputs[0].features[0][: self.depth])
        self._add_first(self._children(rows[:1], 1))
        frontier = self._worth_expanding(self.numbers[: self.width])
        for depth in range(2, rows.shape[0] + 1):
            count = frontier.shape[0]
            if not count:
                break
            # All nodes above have the same children
            shared = Children(*(column.expand(count, -1) for column in self._children(rows[depth - 1 : depth], depth)))
            above = self.levels[-1]
            self._add(shared, self._nodes(frontier), above.scores[frontier], self._same(0, frontier))
            frontier = self._worth_expanding(self._best(self.levels[-1]))
        return self._select()
