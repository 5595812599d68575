"""Climbing the minimal-fix ladder in one project: rung by rung, each held against the client's tree."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from fallback_audit.vocabulary import LadderStep
from fallback_plugins.ladder import blocked
from fallback_plugins.npm.client import Files, Wishes
from fallback_plugins.npm.layout import ECOSYSTEM
from fallback_plugins.npm.near import Near, Plan, declare, no_fix
from fallback_plugins.npm.npm_run import resolver_failed
from fallback_plugins.npm.parents import Changes, ParentWalk
from fallback_plugins.npm.registry import TellsDeprecated
from fallback_plugins.npm.specs import admits, compatible
from fallback_plugins.npm.standing import Mended, Standing
from fallback_plugins.tree import Node
from fallback_tier.errors import RecipeError

#: Client runs that one package's parent bump may cost. The prediction is right the first time as a rule;
#: an old lock makes each run ask the registry about every package in it.
MAX_TRIALS = 4

#: Rounds of near rungs: a granted wish can uncover a copy that another parent asks for.
_MAX_ROUNDS = 3


@dataclass
class Climb(Standing):
    """Takes the rungs in turn. What is affected afterwards is left."""

    def run(self) -> None:
        """All rungs, cheapest first. What is affected afterwards is left; ``final`` says why."""
        self._near()
        if not self.may_declare or self.only is not None:
            return
        if self.affected():
            self._parents()
        for name in self.names():
            self._override(name)

    # --- in range, and declared ---------------------------------------------------------------------

    def _near(self) -> None:
        for _ in range(_MAX_ROUNDS):
            nodes = self.affected()
            if not nodes or not self._near_round(nodes):
                return

    def _near_round(self, nodes: tuple[Node, ...]) -> bool:
        """One plan for all copies in one client run; package by package where that can't be had."""
        near = Near(self.client, self.targets, self.tried, self.only, self.may_declare)
        plan = near.plan(self.files, self.tree, nodes)
        if plan.is_empty:
            return False
        if self._follow(plan):
            return True
        if len({name for name, _ in plan.steps}) == 1:
            return False
        done = False
        for name in dict.fromkeys(name for name, _ in plan.steps):
            some = tuple(node for node in self.affected() if node.name == name)
            one = near.plan(self.files, self.tree, some)
            done = (not one.is_empty and self._follow(one)) or done
        return done

    def _follow(self, plan: Plan, *, again: bool = False) -> bool:
        if self.fresh and plan.files is self.files:
            return False
        if not again:
            plan = self._published(plan)
        try:
            files = self.resolve(plan.files, plan.wishes)
        except RecipeError as error:
            better = plan if again else self._published(plan, surely=True)
            if better is plan:
                self._none_of(plan, error)
                return False
            return self._follow(better, again=True)
        better = plan if again else self._undeprecated(plan, files)
        if better is not plan:
            return self._follow(better, again=True)
        how = {copy: Mended(step) for copy, step in plan.steps.items()}
        problem = self.accept(files, how)
        if problem is None:
            return True
        if not self.fresh and self.only is None:
            # The exact version can't be had: the highest that the ranges allow may do.
            refreshed = tuple(dict.fromkeys(name for name, _ in plan.steps))
            try:
                if self.accept(self.client.update(files, refreshed), how) is None:
                    return True
            except RecipeError as error:
                problem = f"{problem} {error.problem}"
        self._none_of(plan, resolver_failed(problem))
        return False

    def _none_of(self, plan: Plan, error: RecipeError) -> None:
        for (name, _), step in plan.steps.items():
            self.tried_of(name).no(step, error)

    def _published(self, plan: Plan, *, surely: bool = False) -> Plan:
        """The plan with versions that the registry has. A lock that marks deprecated entries tells by
        itself, so that only a failed run (``surely``) is worth the question."""
        tells = isinstance(self.client, TellsDeprecated) and self.client.tells_deprecated(
            self.files
        )
        if self.only is not None or (tells and not surely):
            return plan
        return self._replaced(plan, plan.wishes)

    def _undeprecated(self, plan: Plan, files: Files) -> Plan:
        if self.only is not None or not isinstance(self.client, TellsDeprecated):
            return plan
        marked = self.client.deprecated(files)
        old = {copy: wish for copy, wish in plan.wishes.items() if (copy[0], wish) in marked}
        return self._replaced(plan, old) if old else plan

    def _replaced(self, plan: Plan, wishes: Wishes) -> Plan:
        changed = False
        for (name, _), wish in wishes.items():
            if any(node.version == wish for node in self.tree.of(name)):
                continue  # it is installed already
            better = self.targets.checked(name, wish)
            if better is not None and better != wish:
                self.targets.prefer(name, wish, better)
                changed = True
        if not changed:
            return plan
        near = Near(self.client, self.targets, {}, self.only, self.may_declare)
        nodes = tuple(n for n in self.affected() if (n.name, n.version) in plan.steps)
        return near.plan(self.files, self.tree, nodes)

    # --- parents ------------------------------------------------------------------------------------

    def _parents(self) -> None:
        """First one run for all: what clears several packages at once is raised once."""
        together = Changes()
        for name in self.names():
            together.add(self._wanted(name, {}) or Changes())
        names = self.names()
        if len(names) > 1 and together.raised and self._try(names, together) is None:
            return
        for name in self.names():
            self._parent(name)

    def _parent(self, name: str) -> None:
        failed: dict[str, str] = {}
        for _ in range(MAX_TRIALS):
            if not any(node.name == name for node in self.affected()):
                return
            changes = self._wanted(name, failed)
            if changes is None or not changes.raised:
                return
            problem = self._try((name,), changes)
            if problem is None:
                continue
            self.tried_of(name).no(LadderStep.PARENT_BUMP, problem)
            if not changes.declares or all(
                failed.get(package) == version for (package, _), version in changes.declares.items()
            ):
                return
            failed |= {package: version for (package, _), version in changes.declares.items()}

    def _wanted(self, name: str, failed: dict[str, str]) -> Changes | None:
        walk, changes = ParentWalk(self.tree, self.targets, failed), Changes()
        for node in (node for node in self.affected() if node.name == name):
            try:
                changes.add(walk.changes(node))
            except RecipeError as error:
                self.final[name] = error
                if not failed:
                    self.tried_of(name).no(LadderStep.PARENT_BUMP, error)
                return None
        return changes

    def _try(self, names: tuple[str, ...], changes: Changes) -> str | None:
        """One trial with the real client; None: it served. Otherwise why not, and nothing is changed."""
        kept = self.files, self.tree, dict(self.mended)
        step = LadderStep.PARENT_BUMP if changes.declares else LadderStep.LOCK_REFRESH
        aimed = {(n.name, n.version) for n in self.affected() if n.name in names}
        how = {copy: Mended(step, changes.raised) for copy in aimed}
        try:
            files = self.files
            for (package, key), version in changes.declares.items():
                files = declare(files, package, {key}, version)
            wishes = dict(changes.wishes)
            for package, key in changes.declares:
                for node in self.tree.of(package):
                    if any(
                        a.name == key for r, a in self.tree.askers(node.key) if self.tree.is_root(r)
                    ):
                        wishes[package, node.version] = changes.declares[package, key]
            problem = self.accept(self.resolve(files, wishes), how, partly=True)
        except RecipeError as error:
            self.final.setdefault(names[0], error)
            return error.problem
        if problem is None:
            self._near()  # an ask that was widened now admits a refresh of the copy itself
            left = [n for n in self.affected() if (n.name, n.version) in aimed]
            problem = f"{left[0].label} would still be installed." if left else None
        if problem is not None:
            self.files, self.tree, self.mended = kept
            return problem
        self.mended |= how
        return None

    # --- overrides ----------------------------------------------------------------------------------

    def _override(self, name: str) -> None:
        files, how = self.files, {}
        for node in (node for node in self.affected() if node.name == name):
            target = self.targets.lowest(node, partial(compatible, node.version))
            if target is None:
                self._no_override(node)
                return
            for asker, ask in self.tree.askers(node.key):
                if self.tree.is_root(asker):
                    return  # what the project asks for itself is raised, never overridden
                if not admits(ask.spec, target):
                    parent = self.parent_key(asker)
                    files = self.client.with_override(files, parent, ask.name, target)
            how[node.name, node.version] = Mended(LadderStep.OVERRIDE)
        if files is self.files:
            return
        try:
            problem: RecipeError | str | None = self.accept(self.resolve(files, {}), how)
        except RecipeError as error:
            problem = error
        if problem is not None:
            self.tried_of(name).no(LadderStep.OVERRIDE, problem)

    def parent_key(self, asker: Node) -> str:
        """The parent as an override names it: with its version where it isn't the only one."""
        alone = len({node.version for node in self.tree.of(asker.name)}) == 1
        takes = self.client.name != "yarn"  # its resolutions know names only
        return asker.name if alone or not takes else f"{asker.name}@{asker.version}"

    def _no_override(self, node: Node) -> None:
        lowest = self.targets.lowest(node, lambda _version: True)
        if lowest is None:
            self.final.setdefault(node.name, no_fix(node))
            return
        for asker, ask in self.tree.askers(node.key):
            if not admits(ask.spec, lowest):
                self.final[node.name] = blocked(
                    node.name, lowest, parent=asker.label, spec=ask.spec, where=self.tree.source
                )
        self.tried_of(node.name).no(
            LadderStep.OVERRIDE,
            f"No safe version is compatible with {node.label}; an override would force another one.",
        )

    def prune(
        self, originals: Mapping[str, str], is_clear: Callable[[Iterable[Node]], bool]
    ) -> None:
        """Drop each changed manifest without which the tree is still clear."""
        changed = [path for path, text in originals.items() if self.files.manifests[path] != text]
        for path in changed if len(changed) > 1 else ():
            try:
                files = self.resolve(self.files.with_manifest(path, originals[path]), {})
            except RecipeError:
                continue
            if is_clear(self.client.tree(files).affected(self.advisory, ECOSYSTEM)):
                self.files, self.tree = files, self._tree(files)
