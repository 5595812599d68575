"""What a VEX statement is about: the patched repository, and the packages that were raised in it."""

from packageurl import PackageURL

from fallback_audit.frozen import Frozen
from fallback_tier.ecosystem_rules import PurlName, rules_of
from fallback_tier.outcome import Applied, DependencyBump, Override

#: Hexadecimal digits of a patch's digest in a version: enough to tell two patches of a commit apart.
_SHORT = 12


class Component(Frozen):
    """One package at the version that the patch brought, with its package URL."""

    name: str
    version: str
    purl: str


class Product(Frozen):
    """The repository as it is with the patch. Its package URL never names a *released* version.

    A release of that number may be out, without the patch: the commit that holds it is named, or, where
    nothing was committed, the base commit and the patch's digest.
    """

    name: str
    version: str
    purl: str
    components: tuple[Component, ...] = ()


def product_of(
    application: Applied,
    *,
    repository: str,
    base_commit: str,
    ecosystem: str,
    commit: str | None = None,
) -> Product:
    """The product of a patch: ``repository`` is the folder's name, ``commit`` where it was committed."""
    version = commit or f"{base_commit}+patch.{application.patch_sha256[:_SHORT]}"
    return Product(
        name=repository,
        version=version,
        purl=PackageURL(type="generic", name=repository, version=version).to_string(),
        components=tuple(
            Component(name=name, version=at, purl=package_url(ecosystem, name, at))
            for name, at in _brought(application).items()
        ),
    )


def package_url(ecosystem: str, name: str, version: str) -> str:
    """A package URL (purl-spec), as the ecosystem's rules name the package."""
    rules = rules_of(ecosystem)
    kind, namespace, bare = (
        rules.purl_name(name) if rules else PurlName(ecosystem.lower(), "", name)
    )
    return PackageURL(
        type=kind, namespace=namespace or None, name=bare, version=version
    ).to_string()


def _brought(application: Applied) -> dict[str, str]:
    """Packages and the versions that they were brought to; what left the tree has none."""
    if application.remediation is not None:
        moves = application.remediation.moves
        return {move.package: move.after for move in moves if move.after is not None}
    if isinstance(application.plan, DependencyBump | Override):
        return {application.plan.package: application.plan.version}
    return {}
