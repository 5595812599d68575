"""What an import statement binds, and which of it counts as a use."""

from typing import TYPE_CHECKING

from fallback_tier.gates.capability.literals import module_path
from fallback_tier.gates.capability.names import Names

if TYPE_CHECKING:
    from tree_sitter import Node


def python_import(statement: "Node", names: Names) -> list[str]:
    """Bind its names; the modules, or else members, that it brings in."""
    module = statement.child_by_field_name("module_name")
    if module is None:
        return [_plain(child, names) for child in statement.children_by_field_name("name")]
    inside = names.text(module)
    if any(child.type == "wildcard_import" for child in statement.named_children):
        return names.bind_all(inside)
    brought = []
    for child in statement.children_by_field_name("name"):
        name, alias = _renamed(child, names)
        path = names.carried(f"{inside}.{name}")
        names.bring(alias or name, path)
        brought.append(path)
    return names.weighed(inside, brought)


def _plain(child: "Node", names: Names) -> str:
    """``import a.b`` binds ``a``, ``import a.b as c`` binds ``c``."""
    name, alias = _renamed(child, names)
    if alias:
        names.bring(alias, name)
    else:
        root = name.partition(".")[0]
        names.bring(root, root)
    return name


def _renamed(node: "Node", names: Names) -> tuple[str, str]:
    """What is imported, and the name that it gets where that is another."""
    name, alias = node.child_by_field_name("name"), node.child_by_field_name("alias")
    return names.text(node if name is None else name), names.text(alias) if alias else ""


def javascript_import(statement: "Node", names: Names) -> list[str] | None:
    """As ``python_import``; None where it is no import (``export const …``)."""
    clause = next((c for c in statement.named_children if c.type.endswith("_clause")), None)
    source = statement.child_by_field_name("source")
    if source is None and clause is not None and clause.type == "import_require_clause":
        source = clause.child_by_field_name("source")
    if source is None:
        return None
    if any(child.type == "type" for child in statement.children):
        return []  # of types nothing is left when it runs
    module = module_path(names.literal(source) or "")
    if statement.type == "import_statement" and clause is not None:
        _bind(clause, module, names)
    return [module]


def _bind(clause: "Node", module: str, names: Names) -> None:
    for child in clause.named_children:
        if child.type == "identifier":
            names.bring(names.text(child), module)
        elif child.type == "namespace_import":
            for inner in child.named_children:
                names.bring(names.text(inner), module)
        elif child.type == "named_imports":
            for one in child.named_children:
                name, alias = _renamed(one, names)
                member = name.strip("\"'")  # a name may be a string (ES2022)
                names.bring(alias or name, f"{module}.{member}")
