"""What counts as a capability use: one row a way to write it, and what must not count."""

import re
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fallback_audit.vocabulary import Capability, FailureKind, GateStatus
from fallback_tier.gate_ports import GateVerdict
from fallback_tier.gates.capability import Project, capability_uses, compare, tables
from fallback_tier.gates.failure_summary.distill import distill
from fallback_tier.limits import MAX_FENCED_SUMMARY_BYTES
from fallback_tier.outcome import FileChange
from fallback_tier.syntax import grammar_of
from tests.integration.gate_setup import applied

NOTHING: frozenset[Capability] = frozenset()

PROCESS = {
    "a.py": """
import subprocess
import subprocess as sp
from subprocess import run
from subprocess import *
import os; os.system("x")
from os import system as s
from os import *
import os as o; o.popen("x")
import os; os.execv("/x", [])
import os; os.fork()
import os; os.posix_spawn("/x", [], {})
import os; os.spawnlp(0, "x")
import os; getattr(os, "system")("x")
import os; getattr(os, "sys" + "tem")
import os; getattr(os, "sys" "tem")
import os; getattr(os, "s\\x79stem")
import os; getattr(os, name)("x")
import os; os.__dict__["system"]("x")
import os; vars(os)["system"]("x")
import os; (os).system("x")
import os; run = os.system
import os; o = os; o.system("x")
import os; helper(os)
import os; (q := os).system("x")
import os; (a or os).system("x")
import os; map(os.system, xs)
import os; f"{os.system('x')}"
import os; f, g = os.system, 1
import os; a = b = os; b.system("x")
import os; a = b = os; a.system("x")
def f(run=__import__("os").system): pass
import sys; sys.modules["os"].system("x")
import os; globals()["os"].system("x")
__import__("os").system("x")
import importlib; importlib.import_module("subprocess").run("x")
import pty; pty.spawn("x")
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
import asyncio; asyncio.create_subprocess_exec("x")
import shutil; shutil.os.system("x")
import os; os.path.os.system("x")
from shutil import os as o; o.system("x")
from six.moves import urllib; import os; os.\uff53ystem("x")
import os as system; system.system("x")
@__import__("subprocess").run
def f(): pass
""",
    "a.js": r"""
require("child_process")
require('node:child_process').exec("x")
require(`child_process`)
require("child_" + "process")
require("child\x5fprocess")
import cp from "child_process"
import { exec as e } from "node:child_process"
import * as cp from "child_process"
import "child_process"
export { exec } from "child_process"
export * from "child_process"
await import("child_process")
const { exec: e, ...rest } = require("child_process")
module.require("child_process")
process.mainModule.require("child_process")
globalThis.process.mainModule.require("child_process")
const r = require; r("child_process")
import { createRequire } from "module"; createRequire(import.meta.url)("child_process")
require("worker_threads")
require("cluster").fork()
new Worker("x.js")
require("execa")
require("cross-spawn")("x")
const sh = require("shelljs"); sh.exec("x")
process.getBuiltinModule("child_process").exec("x")
""",
    "a.ts": """
import cp = require("child_process")
import { spawn } from "child_process"
const e = (require("child_process") as any).exec
require("child_process")!.exec("x")
class A { run() { return require("child_process").execSync("x") } }
import type { X } from "y"; import { exec, type Y } from "child_process"
""",
    "a.tsx": """
import { spawn } from "child_process"; export const A = () => <b onClick={() => spawn("x")}/>
export const A = () => <b>{require("child_process").execSync("x")}</b>
""",
}

NETWORK = {
    "a.py": """
import socket
import socket as s; s.create_connection(("h", 1))
from socket import create_connection
import urllib.request
from urllib import request
from urllib.request import urlopen as u
import urllib2
from six.moves.urllib.request import urlopen
import http.client
import requests
from requests import get
import httpx
import aiohttp
import ftplib
import smtplib
import xmlrpc.client
import asyncio; asyncio.open_connection("h", 1)
import paramiko
""",
    "a.js": """
fetch("https://h")
globalThis.fetch("https://h")
window["fetch"]("https://h")
const f = fetch; f("https://h")
new XMLHttpRequest()
new WebSocket("wss://h")
new EventSource("https://h")
navigator.sendBeacon("/x", data)
require("http")
import https from "node:https"
require("net").connect(1)
import { connect } from "tls"
require("dgram")
require("dns/promises")
require("axios")
require("axios/lib/axios.js")
import got from "got"
require("node-fetch")
import { request } from "undici"
""",
    "a.ts": """
const r: Response = await fetch("https://h")
import http = require("http")
import axios, { AxiosError } from "axios"
""",
}

DYNAMIC_CODE = {
    "a.py": """
eval("x")
exec("x")
compile("x", "f", "exec")
e = eval; e("x")
(lambda: eval)()("x")
map(eval, xs)
import builtins; builtins.eval("x")
__builtins__["eval"]("x")
__builtins__.exec("x")
globals()["eval"]("x")
\uff45val("x")
__import__(name)
import importlib; importlib.import_module(name)
import pkgutil; pkgutil.resolve_name("os:system")("x")
from importlib import import_module as m
import pickle; pickle.loads(x)
from pickle import loads
import marshal; marshal.loads(x)
import yaml; yaml.load(x)
import yaml; yaml.load(x, Loader=yaml.Loader)
import yaml; yaml.unsafe_load(x)
import ctypes
import runpy; runpy.run_path("x")
import types; types.FunctionType(c, {})
def f(eval): return eval("x")
""",
    "a.js": r"""
eval("x")
(0, eval)("x")
const e = eval; e("x")
globalThis["eval"]("x")
global.eval("x")
\u0065val("x")
Reflect.get(globalThis, "eval")("x")
eval.call(null, "x")
new Function("x")
Function("x")()
[].constructor.constructor("x")()
(() => 0)["con" + "structor"]("x")()
Reflect.construct(Function, ["x"])()
setTimeout("x", 1)
setInterval(`x${y}`, 1)
require("vm").runInNewContext("x")
import { Script } from "node:vm"
require(name)
import(name)
process.binding("fs")
require.call(null, "child_process").exec("x")
require.bind(null)("child_process")
process.dlopen(m, "x")
window[name]("x")
require("vm2")
WebAssembly.compile(x)
function f(eval) { return eval("x") }
""",
    "a.ts": """
eval("x" as string)
(globalThis as any).eval("x")
(<any>globalThis).eval("x")
const f: Function = new Function("x")
""",
}

HARMLESS = {
    "a.py": r"""
# eval("x"), os.system("x"), import subprocess
"os.system('x')"
'''import subprocess'''
import os; os.path.join("a", "b")
import os; getattr(os, "O_NOFOLLOW", 0)
import re; re.compile("x")
model.eval()
regex.exec("x")
def f(compile=True): return compile
g(compile=False, exec=1)
import yaml; yaml.safe_load(x)
import yaml; yaml.load(x, Loader=yaml.SafeLoader)
import yaml; yaml.load(x, yaml.CSafeLoader)
import pickle; pickle.dumps(x)
from requests.exceptions import Timeout
from subprocess import CalledProcessError, PIPE
import urllib.parse
from urllib.parse import quote
from .subprocess import run; run("x")
from .os import system; system("x")
import xml.dom.minidom
class A: eval = 1
self.eval("x")
""",
    "a.js": r"""
// eval("x"); require("child_process")
"require('child_process')"
/x/.exec(y)
re.exec(y)
f instanceof Function
Function.prototype
this.fetch("x")
api.fetch("x")
const o = { eval: 1, fetch() {}, exec: x }
require("./child_process")
require("fs").readFileSync("x")
import fs from "node:fs"
setTimeout(() => f(), 1)
function f() {}; setTimeout(f, 1)
window[name] = 1
x.constructor.name
process.env.HOME
const { METHODS } = options
function f(fetch) { return fetch }
""",
    "a.ts": """
import type { Server } from "http"
import type * as cp from "child_process"
let x: typeof fetch
interface A { exec(x: string): void; eval: Function }
type B = Function
function f(a: Function): void {}
""",
}


def rows(table: dict[str, str]) -> list[tuple[str, str]]:
    """Path and code of each line; one that begins with ``@`` has the next one with it."""
    return [
        (path, f"{code}\n")
        for path, text in table.items()
        for code in re.findall(r"(?m)^(?:@.*\n)?.+$", text)
    ]


def change(path: str, after: str | None, before: str | None = "") -> FileChange:
    return FileChange(path=path, before=before, after=after)


#: What a minified file is made of: each letter a member of each other one.
LETTERS = list(product("abcdefgh", repeat=3))

#: What the rows below take for granted: names and members that the project has.
PROJECT = {
    "left/a.py": "import yaml, requests\nx.exec(x.eval(), subprocess, os)\n",
    "os.py": "",
    "subprocess.py": "",
    "left/b.js": "f(x, y, re, api, name, options, fetch); x.exec(x.fetch, x.eval)\n",
    "child_process.js": "",
}


def verdict(*changes: FileChange, declared: frozenset[Capability] = NOTHING) -> GateVerdict:
    """In that project."""
    project = Project(tuple(PROJECT), lambda paths: [(path, PROJECT[path]) for path in paths])
    return compare(changes, declared, gate="capability", project=project)


@pytest.mark.parametrize(
    ("kind", "path", "code"),
    [
        (kind, *row)
        for kind, table in (
            (Capability.PROCESS, PROCESS),
            (Capability.NETWORK, NETWORK),
            (Capability.DYNAMIC_CODE, DYNAMIC_CODE),
        )
        for row in rows(table)
    ],
)
def test_a_new_use_must_be_declared(kind: Capability, path: str, code: str) -> None:
    found = verdict(change(path, code))
    assert found.failure_kind is FailureKind.UNDECLARED_CAPABILITY
    assert f'"{kind.value}"' in found.log
    used = capability_uses(code, grammar_of(path))
    assert used is not None
    kinds = frozenset(use.capability for use in used.lines)
    assert kind in kinds
    assert verdict(change(path, code), declared=kinds).status is GateStatus.PASSED
    assert verdict(change(path, code), declared=kinds - {kind}).status is GateStatus.FAILED
    # What was there is not new, wherever it stands and whatever it gets.
    assert verdict(change(path, f"\n{code}", code)).status is GateStatus.PASSED
    assert verdict(change(path, "", code)).status is GateStatus.PASSED
    assert verdict(change(path, None, code)).status is GateStatus.PASSED
    assert verdict(change(path, "", code), change(f"b/{path}", code)).status is GateStatus.PASSED


@pytest.mark.parametrize(("path", "code"), rows(HARMLESS))
def test_what_only_looks_like_it(path: str, code: str) -> None:
    found = verdict(change(path, code))
    assert found.status is GateStatus.PASSED, found.detail


def test_there_are_enough_rows() -> None:
    with_capability = [*rows(PROCESS), *rows(NETWORK), *rows(DYNAMIC_CODE)]
    for suffixes in ((".py",), (".js", ".ts", ".tsx")):
        assert sum(path.endswith(suffixes) for path, _ in with_capability) >= 60


# --- What is compared ------------------------------------------------------------------------------


def test_the_verdict_names_what_where_and_how_to_declare_it() -> None:
    found = verdict(
        change("lib/a.js", "const { exec: e } = require('child_process')\nf()\ne('x')\n"),
        change("b.py", "x = 1\nimport socket\n"),
    )
    assert found.detail == "3 problems: new network use of socket (b.py line 2)"
    message, *uses = found.log.split("\n")
    assert 'add "capabilities": ["network", "process"] to the plan, beside "action"' in message
    assert uses == [
        "new network use of socket (b.py line 2)",
        "new process use of child_process (lib/a.js line 1)",
        "new process use of child_process.exec (lib/a.js line 3)",
    ]


def test_a_retry_is_told_how_to_declare() -> None:
    hostile = "".join(f"subprocess.{name * 60}()\n" for name in "abcdefghijklmnopqrstuvwxyz")
    failed = verdict(change("x" * 200 + ".py", f"import subprocess\n{hostile}"))
    summary = distill([failed], application=applied("--- a/x\n+++ b/x\n"), attempt=1)
    assert summary.failure_kind is FailureKind.UNDECLARED_CAPABILITY
    assert '"capabilities": ["process"]' in summary.prior_failure_summary
    assert len(summary.prior_failure_summary.encode()) < MAX_FENCED_SUMMARY_BYTES


def test_a_declared_use_is_told_to_the_reviewer() -> None:
    found = verdict(
        change("a.py", "import socket\n"),
        declared=frozenset({Capability.NETWORK, Capability.PROCESS}),
    )
    assert found.status is GateStatus.PASSED
    assert found.detail == "declared network use of socket (a.py line 1)"


def test_once_more_is_new() -> None:
    before = "import os\nos.system('a')\n"
    assert verdict(change("a.py", f"{before}os.system('a')\n", before)).failure_kind
    assert verdict(change("a.py", before.replace("'a'", "evil"), before)).failure_kind is None


def test_a_copy_in_another_file_is_new_a_move_is_not() -> None:
    code = "import os\nos.system('a')\n"
    assert verdict(change("a.py", code, code), change("b.py", code)).failure_kind
    assert verdict(change("a.py", None, code), change("b.py", code)).failure_kind is None
    assert verdict(change("a.py", "", code), change("b.py", code)).failure_kind is None


def test_another_function_of_the_same_module_is_new() -> None:
    before = "const cp = require('child_process')\ncp.execFile('a')\n"
    found = verdict(change("a.js", before.replace("execFile", "exec"), before))
    assert "child_process.exec (" in found.detail


@pytest.mark.parametrize("code", ["def f(:\n", "import os\nos.system('x'\n", "x = '\n"])
def test_what_the_patch_broke_can_t_be_judged(code: str) -> None:
    found = verdict(change("a.py", code, "x = 1\n"), declared=frozenset(Capability))
    assert found.failure_kind is FailureKind.UNDECLARED_CAPABILITY
    assert "'a.py' could not be read as its language" in found.log


def test_what_was_broken_before_is_read_around_the_fault() -> None:
    before = "x = = 1\ndef f(): pass\n"
    assert verdict(change("a.py", before + "y = 2\n", before)).failure_kind is None
    assert verdict(change("a.py", before + "import os\nos.system('x')\n", before)).failure_kind


def test_files_of_other_languages_are_named_or_left_to_the_recipe() -> None:
    found = verdict(change("a.rb", "system 'x'\n"))
    assert found.status is GateStatus.SKIPPED
    assert "a.rb" in found.detail
    found = verdict(change("a.rb", "system 'x'\n"), change("a.py", "x = 1\n"))
    assert found.status is GateStatus.PASSED
    assert found.detail.endswith("; not read: a.rb")
    found = verdict(change("package.json", "{}\n"), change("uv.lock", ""))
    assert (found.status, found.detail) == (GateStatus.PASSED, "no source file changed")


@pytest.mark.parametrize(
    ("first", "code"),
    [("#!/usr/bin/env node", "require('net')"), ("#!/usr/bin/python3", "import socket")],
)
def test_a_program_without_a_suffix_is_read_by_its_first_line(first: str, code: str) -> None:
    assert verdict(change("bin/run", f"{first}\n{code}\n")).failure_kind
    assert verdict(change("bin/run", f"{code}\n")).status is GateStatus.SKIPPED


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("a.py", "(" * 4_000 + "os" + ")" * 4_000),
        ("a.py", "x" + ".a" * 4_000),
        ("a.js", "f(" * 4_000 + "1" + ")" * 4_000),
        ("a.js", "a" + ".b('c')" * 4_000),
        ("a.js", "a = a.b; " * 2_000),
        ("a.js", "".join(f"const a{n} = a{n + 1}; " for n in range(1_000))),
        ("a.js", "a = require('path'); " + "".join(f"{x} = {y}.{z}; " for x, y, z in LETTERS)),
        ("a.js", "const " + "{a: " * 2_000 + "b" + "}" * 2_000 + " = require('net')"),
    ],
    ids=[
        "parentheses",
        "members",
        "calls",
        "chained calls",
        "itself",
        "chain",
        "letters",
        "patterns",
    ],
)
def test_hostile_shapes_are_read_or_refused(path: str, code: str) -> None:
    assert verdict(change(path, f"import os\n{code}\n" if path == "a.py" else code)).detail


# --- Any listed name -------------------------------------------------------------------------------

BENIGN = {
    "python": "import os\n\ndef greet(name):\n    return os.path.join('hello', name)\n",
    "javascript": "'use strict'\nconst path = require('path')\nexports.f = (x) => path.join('a', x)\n",
}


def uses_of(path: str, grammar: str) -> str:
    """A line that uses a listed path, whatever that is."""
    root, _, rest = path.partition(".")
    table = tables.PYTHON if grammar == "python" else tables.JAVASCRIPT
    if root in table.roots:
        return f"{path}('x')\n"
    if grammar == "python":
        return f"import {path.rpartition('.')[0] or path}\n{path}('x')\n"
    if "-" in path or not rest:
        return f"require('{path}')('x')\n"
    return f"require('{root}').{rest}('x')\n"


LISTED = [
    (grammar, path, kind)
    for grammar, table in (("python", tables.PYTHON), ("javascript", tables.JAVASCRIPT))
    for path, kind in sorted(table.listed.items())
]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(LISTED), st.integers(0, 3))
def test_any_listed_use_is_caught_and_its_removal_is_not(
    listed: tuple[str, str, Capability], place: int
) -> None:
    grammar, path, kind = listed
    name = "a.py" if grammar == "python" else "a.js"
    lines = BENIGN[grammar].splitlines(keepends=True)
    at = 0 if place == 0 else len(lines)
    with_it = "".join([*lines[:at], uses_of(path, grammar), *lines[at:]])
    found = verdict(change(name, with_it, BENIGN[grammar]))
    assert f'"{kind.value}"' in found.log, path
    assert verdict(change(name, BENIGN[grammar], with_it)).status is GateStatus.PASSED


def test_no_entry_is_listed_twice_or_hidden_by_its_module() -> None:
    for table in (tables.PYTHON, tables.JAVASCRIPT):
        for path, kind in table.listed.items():
            assert table.normal(path) in {path, path.rpartition(".")[0]}, path
            assert table.kind(table.normal(path)) is kind, path
