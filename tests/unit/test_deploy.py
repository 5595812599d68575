"""The deployment files say what the program takes, and keep the safeguards that they promise."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from fallback_tier.cli.main import build_parser
from fallback_tier.service.settings import read_settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "docs" / "deploy"
DOCKERFILE = DEPLOY / "Dockerfile"
UNIT = DEPLOY / "fallback-tier.service"
HADOLINT = Path(sys.prefix) / "bin" / "hadolint"

#: What the sandbox can't do without (docs/deploy/README.md says why).
BREAKS_THE_SANDBOX = {
    "MemoryDenyWriteExecute",
    "PrivateUsers",
    "ProcSubset",
    "ProtectControlGroups",
    "ProtectKernelLogs",
    "ProtectKernelTunables",
    "ProtectProc",
    "RestrictNamespaces",
}


def instructions() -> list[tuple[str, str]]:
    """Each instruction of the Dockerfile and its words, comments left out."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line]  # type: ignore[misc]


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


def unit() -> dict[str, list[str]]:
    """Settings of the unit, each with its values in order."""
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def linted(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [HADOLINT, "--no-color", path], capture_output=True, text=True, timeout=120
    )


def test_the_linter_finds_nothing() -> None:
    done = linted(DOCKERFILE)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_linter_would_find_something(tmp_path: Path) -> None:
    bad = tmp_path / "Dockerfile"
    bad.write_text(DOCKERFILE.read_text().replace("USER 10001:10001", "USER root"))
    assert "DL3002" in linted(bad).stdout
    bad.write_text(DOCKERFILE.read_text().replace("# hadolint ignore=DL3008\n", ""))
    assert "DL3008" in linted(bad).stdout


def test_the_image_runs_the_service_and_not_as_root() -> None:
    last = dict(instructions())
    assert last["USER"] == "10001:10001"
    words = [*yaml.safe_load(last["ENTRYPOINT"]), *yaml.safe_load(last["CMD"])]
    assert words[0] == "fallback-tier"
    assert build_parser().parse_args(words[1:]).handler.startswith("fallback_tier.cli.serve")
    assert "STOPSIGNAL" in last
    assert "/health/ready" in last["HEALTHCHECK"]
    for image in (words for name, words in instructions() if name == "FROM"):
        assert re.match(r"[a-z]+:[\w.-]+", image), f"{image} has no version"


def test_the_image_is_what_the_lock_says() -> None:
    runs = " ".join(words for name, words in instructions() if name == "RUN")
    assert "--require-hashes" in runs
    assert "--constraint requirements.lock" in runs
    extras = re.findall(r"'\.\[([\w,]+)\]'", runs)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras[0].split(",")) <= set(project["optional-dependencies"])
    kept = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert kept[1] == "*"
    for line in kept:
        if line.startswith("!"):
            assert (ROOT / line[1:]).exists(), line


def test_the_containers_are_held_tight() -> None:
    for name, service in compose()["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in service["security_opt"], name
        assert not service.get("privileged"), name
        assert service["tmpfs"], name
    ours = compose()["services"]["fallback-tier"]
    assert ours["user"] == dict(instructions())["USER"]
    assert {"seccomp=unconfined", "systempaths=unconfined"} < set(ours["security_opt"])
    assert "ports" not in compose()["services"]["db"]
    assert compose()["networks"]["inside"] == {"internal": True}


def test_what_the_compose_file_names_is_declared() -> None:
    document = compose()
    for service in document["services"].values():
        assert set(service.get("secrets", ())) <= set(document["secrets"])
        assert set(service["networks"]) <= set(document["networks"])
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert source.startswith("./") or source in document["volumes"], volume
    build = document["services"]["fallback-tier"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == DOCKERFILE
    places = {volume.split(":")[1] for volume in document["services"]["fallback-tier"]["volumes"]}
    assert places >= set(yaml.safe_load(dict(instructions())["VOLUME"]))


def test_the_settings_in_the_container_are_settings() -> None:
    settings = read_settings(DEPLOY / "service.toml")
    secrets = compose()["secrets"]
    for path in (settings.listen.tls_cert, settings.listen.tls_key):
        assert path is not None
        assert path.parent == Path("/run/secrets")
        assert path.name in secrets
    assert settings.repositories["app"].path == Path("/srv/git/app")


def test_the_unit_runs_the_service_and_is_hardened() -> None:
    (start,) = unit()["ExecStart"]
    program, *words = shlex.split(start)
    assert program == "/opt/fallback-tier/bin/fallback-tier"
    assert build_parser().parse_args(words).handler.startswith("fallback_tier.cli.serve")
    wanted = {
        "User": "fallback-tier",
        "NoNewPrivileges": "yes",
        "CapabilityBoundingSet": "",
        "ProtectSystem": "strict",
        "ProtectHome": "yes",
        "PrivateTmp": "yes",
        "RestrictSUIDSGID": "yes",
        "UMask": "0077",
        "SystemCallArchitectures": "native",
    }
    assert {name: unit()[name][0] for name in wanted} == wanted
    (filtered,) = unit()["SystemCallFilter"]
    assert {"@system-service", "@mount", "seccomp", "landlock_restrict_self"} <= {*filtered.split()}
    assert not BREAKS_THE_SANDBOX & set(unit())


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_the_unit_is_understood_by_systemd(tmp_path: Path) -> None:
    def reported(text: str) -> str:
        # The program is not installed where the unit expects it.
        (path := tmp_path / "fallback-tier.service").write_text(
            text.replace("/opt/fallback-tier/bin/fallback-tier", sys.executable)
        )
        done = subprocess.run(
            ["systemd-analyze", "verify", path], capture_output=True, text=True, timeout=120
        )
        return "\n".join(line for line in done.stderr.splitlines() if line.startswith(str(path)))

    assert reported(UNIT.read_text()) == ""
    assert "NoNewPrivilege" in reported(
        UNIT.read_text().replace("NoNewPrivileges=", "NoNewPrivilege=")
    )


def test_every_variable_of_ours_is_one_that_the_program_reads() -> None:
    code = "".join(path.read_text() for path in (ROOT / "fallback_tier").rglob("*.py"))
    files = [*DEPLOY.iterdir(), ROOT / "docs" / "runbook.md", ROOT / "docs" / "observability.md"]
    named = {
        name for path in files for name in re.findall(r"\bFALLBACK_TIER_\w+", path.read_text())
    }
    assert len(named) > 4
    assert {name for name in named if f'"{name}"' not in code} == set()
