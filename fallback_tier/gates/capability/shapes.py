"""The reader's knowledge of a grammar: nodes that name, call, bind and import."""

from collections.abc import Mapping
from dataclasses import dataclass

#: Nodes that are a function.
FUNCTIONS = frozenset(
    {"arrow_function", "function_expression", "function", "generator_function", "lambda"}
)

#: Nodes whose children are handed on.
HANDED_ON = frozenset({"arguments", "argument_list", "array", "list", "tuple", "class_heritage"})

#: Nodes that spell a name or a text.
SPELLED = frozenset(
    {
        *("identifier", "property_identifier", "shorthand_property_identifier", "string"),
        *("shorthand_property_identifier_pattern", "template_string", "concatenated_string"),
        *("binary_operator", "binary_expression"),
    }
)

#: Calls that set members of their first argument; the second names the member.
SETTERS = frozenset({"setattr", "delattr"})
SETTERS_OF = frozenset({"Object", "Reflect", "object", "type"})
MEMBER_SETTERS = frozenset(
    {
        *(
            "assign",
            "defineProperty",
            "defineProperties",
            "setPrototypeOf",
            "set",
            "deleteProperty",
        ),
        *("__setattr__", "__delattr__"),
    }
)
#: Methods that set members of the object that they are called on.
UPDATERS = frozenset({"update", "setdefault", "__setitem__", "__ior__"})
#: Of both, those that take the members from other values.
MERGERS = frozenset({"assign", "defineProperties", "setPrototypeOf", "update", "__ior__"})


@dataclass(frozen=True)
class Shape:
    """Node types by their meaning; field names in the order that the reader expects.

    ``members`` and ``indexes``: object, then name. ``calls``: the callee. ``pairs``: a target and its
    value. ``targets``: fields that bind names. ``lists``: nodes whose children bind names. ``through``:
    nodes that have the value of one of their children. ``labels``: fields that are not an expression.
    ``skipped``: nodes that are not executed.
    """

    names: frozenset[str]
    members: Mapping[str, tuple[str, str]]
    indexes: Mapping[str, tuple[str, str]]
    calls: Mapping[str, str]
    pairs: Mapping[str, tuple[str, str]]
    targets: Mapping[str, tuple[str, ...]]
    lists: frozenset[str]
    through: frozenset[str]
    labels: Mapping[str, str]
    imports: frozenset[str]
    skipped: frozenset[str]


PYTHON = Shape(
    names=frozenset({"identifier"}),
    members={"attribute": ("object", "attribute")},
    indexes={"subscript": ("value", "subscript")},
    calls={"call": "function"},
    pairs={
        "assignment": ("left", "right"),
        "named_expression": ("name", "value"),
        "default_parameter": ("name", "value"),
        "typed_default_parameter": ("name", "value"),
    },
    targets={
        "function_definition": ("name",),
        "class_definition": ("name",),
        "for_statement": ("left",),
        "for_in_clause": ("left",),
        "augmented_assignment": ("left",),
    },
    lists=frozenset({"parameters", "lambda_parameters", "as_pattern_target", "case_pattern"}),
    through=frozenset(
        {"parenthesized_expression", "await", "conditional_expression", "boolean_operator"}
    ),
    labels={"keyword_argument": "name"},
    imports=frozenset({"import_statement", "import_from_statement"}),
    skipped=frozenset({"comment", "global_statement", "nonlocal_statement"}),
)

JAVASCRIPT = Shape(
    names=frozenset({"identifier", "shorthand_property_identifier"}),
    members={"member_expression": ("object", "property")},
    indexes={"subscript_expression": ("object", "index")},
    calls={"call_expression": "function", "new_expression": "constructor"},
    pairs={
        "variable_declarator": ("name", "value"),
        "assignment_expression": ("left", "right"),
        "assignment_pattern": ("left", "right"),
        "object_assignment_pattern": ("left", "right"),
        "required_parameter": ("pattern", "value"),
        "optional_parameter": ("pattern", "value"),
    },
    targets={
        "function_declaration": ("name",),
        "function_expression": ("name",),
        "generator_function_declaration": ("name",),
        "class_declaration": ("name",),
        "arrow_function": ("parameter",),
        "catch_clause": ("parameter",),
        "for_in_statement": ("left",),
        "augmented_assignment_expression": ("left",),
        "update_expression": ("argument",),
    },
    lists=frozenset({"formal_parameters"}),
    through=frozenset(
        {
            *("parenthesized_expression", "await_expression", "ternary_expression"),
            *("sequence_expression", "binary_expression", "non_null_expression"),
            *("as_expression", "satisfies_expression", "type_assertion"),
        }
    ),
    labels={},
    imports=frozenset({"import_statement", "export_statement"}),
    skipped=frozenset(
        {
            *("comment", "type_annotation", "type_arguments", "type_parameters", "type_query"),
            *("type_alias_declaration", "interface_declaration", "implements_clause"),
            *("nested_type_identifier", "generic_type"),
        }
    ),
)
