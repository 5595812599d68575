"""The minimal-fix ladder (ADR-0016, ADR-0047): one engine, and each ecosystem's strategies.

A *project* is what one client resolves together: a manifest with its lock, a workspace, a requirements
file with what it includes. Each is resolved by itself, on texts in memory, by strategies in the order that
its ecosystem lists them; ``combined`` puts the projects of a repository together.
"""

from fallback_plugins.shared.ladder.declines import PROJECT as PROJECT
from fallback_plugins.shared.ladder.declines import Tried as Tried
from fallback_plugins.shared.ladder.declines import blocked as blocked
from fallback_plugins.shared.ladder.declines import client_refused as client_refused
from fallback_plugins.shared.ladder.declines import does_not_apply as does_not_apply
from fallback_plugins.shared.ladder.declines import does_not_serve as does_not_serve
from fallback_plugins.shared.ladder.declines import error_of as error_of
from fallback_plugins.shared.ladder.declines import left_behind as left_behind
from fallback_plugins.shared.ladder.declines import refuse as refuse
from fallback_plugins.shared.ladder.declines import refused_for as refused_for
from fallback_plugins.shared.ladder.declines import registry_blocker as registry_blocker
from fallback_plugins.shared.ladder.declines import unknown as unknown
from fallback_plugins.shared.ladder.declines import whole_project_left as whole_project_left
from fallback_plugins.shared.ladder.engine import Resolution as Resolution
from fallback_plugins.shared.ladder.result import NO_TEXTS as NO_TEXTS
from fallback_plugins.shared.ladder.result import HeldToAges as HeldToAges
from fallback_plugins.shared.ladder.result import Project as Project
from fallback_plugins.shared.ladder.result import ProjectFix as ProjectFix
from fallback_plugins.shared.ladder.result import combined as combined
from fallback_plugins.shared.ladder.result import resolve_all as resolve_all
from fallback_plugins.shared.ladder.strategy import Position as Position
from fallback_plugins.shared.ladder.strategy import Reached as Reached
from fallback_plugins.shared.ladder.strategy import ResultRules as ResultRules
from fallback_plugins.shared.ladder.strategy import Strategy as Strategy
from fallback_plugins.shared.ladder.strategy import copies as copies
from fallback_plugins.shared.ladder.strategy import never_worse as never_worse
from fallback_plugins.shared.ladder.strategy import ordered as ordered
from fallback_plugins.shared.ladder.strategy import worse as worse
