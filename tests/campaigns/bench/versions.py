"""Which versions were compared, read from the environments' metadata folders."""

import re
import subprocess
from pathlib import Path

#: What the rows use, by environment.
_NAMED = {
    "ours": ("fallback-tier", "numpy", "onnxruntime", "pydantic", "uv"),
    "peers": (
        "chromadb",
        "faiss-cpu",
        "langgraph",
        "langgraph-checkpoint-sqlite",
        "mini-swe-agent",
        "pip-audit",
        "sqlite-vec",
        "tantivy",
    ),
    "aider": ("aider-chat",),
}
_TOOLS = ("git", "npm", "node")


def installed(environments: Path) -> dict[str, str]:
    """Name → version, of packages and of programs; what is missing is left out."""
    found = {
        name: version
        for environment, names in _NAMED.items()
        for name in names
        if (version := _package(environments / environment, name))
    }
    return found | {tool: version for tool in _TOOLS if (version := _program(tool))}


def _package(environment: Path, name: str) -> str | None:
    stem = name.replace("-", "_")
    for folder in environment.glob(f"lib/python*/site-packages/{stem}-*.dist-info"):
        return folder.name.removeprefix(f"{stem}-").removesuffix(".dist-info")
    return None


def _program(tool: str) -> str | None:
    try:
        reported = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    version = re.search(r"\d+(\.\d+)+", reported.stdout)
    return version.group() if version else None
