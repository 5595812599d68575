"""Plugins by entry point: found once, loaded by name, and named if they fail (ADR-0066)."""

import errno
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ParamSpec, TypeVar

from fallback_tier.errors import FallbackError, PluginError, place_of

#: A plugin that ends the process would end a fix, with exit code 0 as if it had succeeded.
_ITS_OWN = (Exception, SystemExit)

_P = ParamSpec("_P")
_T = TypeVar("_T")

#: Errors of the machine, for any caller: reported as the system's own error, not as a plugin's.
_OF_THE_MACHINE = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM, errno.EMFILE,
     errno.ENFILE, errno.ENOMEM}
)  # fmt: skip

#: Most characters of an exception's own message: its first line, as far as people read it.
_QUOTED = 300


@dataclass(frozen=True)
class Mounted:
    """One entry point, and the distribution that it belongs to."""

    entry: EntryPoint

    @property
    def name(self) -> str:
        """The entry point's name."""
        return self.entry.name

    @property
    def distribution(self) -> str:
        """Name and version of the distribution."""
        dist = self.entry.dist
        return "an unknown distribution" if dist is None else f"{dist.name} {dist.version}"

    def load(self) -> Any:
        """Return the object that the entry point names. Raises PluginError."""
        return self.call("loading it", self.entry.load)

    def call(
        self, hook: str, function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Return what a plugin's function returns. FallbackErrors pass, and system errors if the machine
        lacks something; any other exception of the plugin becomes a PluginError."""
        try:
            return function(*args, **kwargs)
        except FallbackError:
            raise
        except _ITS_OWN as error:
            self.blame(hook, error)
            raise

    def blame(self, hook: str, error: BaseException) -> None:
        """Raise PluginError if an exception is the plugin's own, not the system's."""
        if not (isinstance(error, OSError) and error.errno in _OF_THE_MACHINE):
            raise self.failed(hook, _described(error), kind="raised") from error

    def failed(self, hook: str, why: str, *, kind: str = "") -> PluginError:
        """Return the error that names the plugin, the hook, and what to do."""
        return PluginError(
            f"The plugin {self.name!r} of {self.distribution} (entry point {self.entry.value!r} of "
            f"{self.entry.group}) failed in {hook}: {why}.",
            next_step="Repair or uninstall that distribution, or report this to its makers; then run this "
            "again.",
            kind=kind,
        )


@cache
def mounted(group: str) -> Mapping[str, Mounted]:
    """Return the entry points of a group by name. What is installed does not change while a process runs.

    Raises PluginError if two have one name: neither can be meant.
    """
    by_name: dict[str, Mounted] = {}
    for entry in entry_points(group=group):
        first = by_name.get(entry.name)
        if first is not None and first.entry.value != entry.value:
            both = f"{first.distribution} and {Mounted(entry).distribution}"
            raise first.failed(
                "finding it", f"{both} have a plugin of that name", kind="name_taken"
            )
        by_name[entry.name] = Mounted(entry)
    return by_name


def guarded(
    plugin: object,
    owner: Mounted,
    protocol: type,
    *,
    optional: Iterable[str] = (),
    passes: Mapping[str, type[Exception]] | None = None,
    gives: Mapping[str, tuple[type, ...]] | None = None,
) -> Any:
    """Return an object with the hooks of a protocol (properties as they are now) and ``optional`` ones,
    each called by its owner's ``call``. ``passes``: what a hook may raise, too; ``gives``: what it returns.

    Raises PluginError if one is missing, or is inherited from the protocol: that would answer None.
    """
    hooks = {}
    for hook in (*hooks_of(protocol), *optional):
        if getattr(type(plugin), hook, None) is getattr(protocol, hook, owner):
            raise owner.failed(
                hook, f"{type(plugin).__name__} has none of its own", kind="hook_missing"
            )
        value = owner.call(hook, getattr, plugin, hook)
        may_raise = (passes or {}).get(hook, FallbackError)
        hooks[hook] = _hook(owner, hook, value, may_raise, (gives or {}).get(hook, (object,)))
    return _Guarded(hooks)


class _Guarded:
    """An object whose attributes are in its instance, so that runtime-checkable protocols see them."""

    def __init__(self, hooks: Mapping[str, Any]) -> None:
        self.__dict__.update(hooks)


def overlaid(guarded_plugin: Any, **hooks: Any) -> Any:
    """Return the same object with other ``hooks``."""
    return _Guarded({**vars(guarded_plugin), **hooks})


def _hook(
    owner: Mounted, hook: str, value: Any, passes: type[Exception], gives: tuple[type, ...]
) -> Any:
    if not callable(value):
        return value

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            result = value(*args, **kwargs)
        except (FallbackError, passes):
            raise
        except _ITS_OWN as error:
            owner.blame(hook, error)
            raise
        if not isinstance(result, gives):
            raise owner.failed(hook, f"it returned {type(result).__name__}", kind="bad_return")
        return result

    return call


def hooks_of(protocol: type) -> tuple[str, ...]:
    """Return the names of a protocol's hooks."""
    return tuple(name for name in vars(protocol) if not name.startswith("_"))


def _described(error: BaseException) -> str:
    first_line = str(error).partition("\n")[0][:_QUOTED]
    return f"{place_of(error)}: {first_line}" if first_line else place_of(error)
