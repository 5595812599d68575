"""What a result changes for the application, so that two ways out can be told apart (ADR-0047)."""

from dataclasses import dataclass

from fallback_plugins.shared.tree import DependencyTree
from fallback_tier.advisory.versions import is_major_step

#: Installed copies that may change before another way is looked for: what a reviewer looks through at once.
LIGHT = 12


@dataclass(frozen=True, order=True)
class Weight:
    """Compared part by part: ``majors`` counts the packages that the project itself asks for and that make
    a major step, ``copies`` the installed copies that come, go or change."""

    majors: int
    copies: int

    @property
    def is_light(self) -> bool:
        """Not worth the price of looking for another way."""
        return not self.majors and self.copies <= LIGHT

    def __str__(self) -> str:
        message = f"{self.copies} installed packages change"
        if not self.majors:
            return message
        what = (
            "1 that the project requires makes"
            if self.majors == 1
            else f"{self.majors} that the project requires make"
        )
        return f"{message}, {what} a major step"


def weight_of(ecosystem: str, before: DependencyTree, after: DependencyTree) -> Weight:
    """The difference between two trees of one project."""
    old, new = (
        {(key, node.version) for key, node in tree.nodes.items()} for tree in (before, after)
    )
    # One copy that changed is one, not one that went and one that came.
    changed = {key for key, _ in old ^ new}
    return Weight(len(major_steps(ecosystem, before, after)), len(changed))


def major_steps(
    ecosystem: str, before: DependencyTree, after: DependencyTree
) -> tuple[tuple[str, str, str], ...]:
    """What the project itself asks for and makes a major step: (package, from, to), by name."""
    asked = {
        before.nodes[ask.to].name
        for root in before.roots
        for ask in root.asks
        if ask.to is not None and ask.to in before.nodes
    }
    found = []
    for name in sorted(asked):
        old, new = (tree.highest(ecosystem, name) for tree in (before, after))
        if old and new and is_major_step(ecosystem, old, new):
            found.append((name, old, new))
    return tuple(found)
