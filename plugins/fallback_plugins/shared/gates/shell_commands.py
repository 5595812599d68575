"""Parser of shell text, which is never run: the commands in it, and the purpose of each.

A script is split at line ends, ``&&`` and ``;``. A pipe and ``||`` stay in their command. A compound
command (``if`` … ``fi``) is one command without words.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Literal, TypeAlias

from fallback_plugins.shared.commands import words_of as words_of

MAX_SCRIPT_CHARS = 20_000  # a step of CI has some lines; what is longer is left out


class CommandKind(StrEnum):
    """The purpose of a command. Each kind is judged alone: an error of a type check is not a failing
    test."""

    TESTS = "tests"
    TYPES = "types"
    LINT = "lint"
    BUILD = "build"


#: The purpose of a program: a kind; ``noise``: tests don't need it; ``code``: a line of code; None:
#: unknown.
_Use: TypeAlias = CommandKind | Literal["noise", "code"] | None

TESTS, TYPES, LINT, BUILD = CommandKind


# -- a script's commands -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShellCommand:
    """One command. ``words``: the values of its words up to a pipe or redirection; ``ends``: where each
    ends in ``text``. Both are empty for a compound command. ``is_background``: it ends with ``&``."""

    text: str
    words: tuple[str, ...] = ()
    ends: tuple[int, ...] = ()
    is_background: bool = False

    def rest(self, count: int) -> str:
        """Return the text after the first ``count`` words."""
        return self.text[self.ends[count - 1] if count else 0 :].strip()

    def after(self, count: int, by: str = "") -> "ShellCommand":
        """Return the command with its first ``count`` words replaced by ``by``, or removed."""
        return simple(f"{by} {self.rest(count)}".strip()) if count else self


def _braced(opening: str, closing: str) -> str:
    """Return an expression for balanced text, at most three pairs deep within the outer one."""
    inner = rf"[^{opening}{closing}]"
    body = rf"{inner}*+"
    for _ in range(3):
        body = rf"(?:{inner}|\{opening}{body}\{closing})*+"
    return rf"\{opening}{body}\{closing}"


#: No part can be read in two ways, so that any text is read once.
_TOKEN = re.compile(
    rf"""(?xs)
    (?P<space>[ \t\r\f\v]+|(?<![^\s;&|()])\#[^\n]*)
    |(?P<redirect>\d?(?:>>|>\||>|<<|<|&>>?)(?:&\d?-?)?)
    |(?P<end>&&|\|\||\|&|;;|[\n;&|])
    |(?P<word>(?:\\.|'[^']*+'|"(?:\\.|[^"\\])*+"|`[^`]*+`|(?<=[\w$@!?*+=]){_braced("(", ")")}
        |\$?{_braced("{", "}")}|[^\s;&|<>()'"`\\])++)
    |(?P<other>.)"""
)
_QUOTES = re.compile(r"\\(.)|'([^']*)'|\"((?:\\.|[^\"\\])*)\"", re.DOTALL)
_ENDS = {"if": "fi", "case": "esac", "{": "}", "[[": "]]"} | dict.fromkeys(
    ("for", "while", "until", "select"), "done"
)


def simple(text: str) -> ShellCommand:
    """Return the first command of a text, with all of the text."""
    return next(
        (ShellCommand(text, command.words, command.ends) for command in _cut(text)),
        ShellCommand(text),
    )


def split_script(script: str) -> list[ShellCommand]:
    """Return the commands of a script in their order; none if it is too long. One that defines functions or
    has texts of several lines (``<<``) is one command."""
    if len(script) > MAX_SCRIPT_CHARS or "\0" in script:
        return []
    commands = list(_cut(re.sub(r"\\\r?\n[ \t]*", " ", script.replace("\r\n", "\n"))))
    if any(
        re.match(r"[\w-]+\s*\(\)|function\s", command.text) or "<<" in command.text
        for command in commands
    ):
        return [ShellCommand(script.strip())]
    return commands


def _cut(script: str) -> Iterator[ShellCommand]:
    start = end = -1
    opened: list[str] = []
    words: list[str] = []
    ends: list[int] = []
    is_first = is_plain = is_open = True  # for a command's name; has words; more words may come
    for match in (*_TOKEN.finditer(script), None):
        kind, text = (match.lastgroup, match[0]) if match else ("end", "\n")
        if kind == "space":
            continue
        if kind == "end" and not opened and not (text == "\n" and start >= 0 and is_first):
            if text in ("|", "||", "|&") and start >= 0:
                is_first, is_open, end = True, False, match.end() if match else end
                continue
            if start >= 0:
                parts = (tuple(words), tuple(ends)) if is_plain else ((), ())
                yield ShellCommand(script[start:end], *parts, text == "&")
            start, words, ends, is_first, is_plain, is_open = -1, [], [], True, True, True
            continue
        if match is None:
            break
        if start < 0:
            start = match.start()
        if kind != "end" or text != "\n":
            end = match.end()
        if opened and text == opened[-1]:
            opened.pop()
        elif (is_first and text in _ENDS) or text == "(":
            is_plain = is_plain and not is_open if is_first else is_plain
            opened.append(_ENDS.get(text, ")"))
        elif kind == "redirect":
            is_open = False
        elif is_open and not opened:
            words.append(_QUOTES.sub(lambda match: match[1] or match[2] or match[3] or "", text))
            ends.append(match.end() - start)
        is_first = kind == "end" or text in ("then", "else", "do", "(", "{")
    if start >= 0 and opened:
        yield ShellCommand(script[start:].strip())


# -- the purpose of a command ------------------------------------------------------------------------------

#: The built-in commands of npm's clients. Any other first argument is a script or a program.
CLIENT_VERBS = words_of("""
    add audit cache ci config constraints create dedupe dlx fetch global help i import info init install
    link list login ls outdated pack patch plugin policies prune publish rebuild remove set up update
    upgrade version whoami why""")
NPM_CLIENTS = frozenset(("npm", "pnpm", "yarn", "bun", "jlpm"))

#: Programs by purpose; the purpose of "a:b,c" depends on the first argument. Other programs are rare.
_PROGRAMS: Mapping[_Use, str] = {
    TESTS: """
        _mocha aegir ava avocado behave borp cucumber-js cypress jasmine jest jest-cli karma lab mocha
        nightwatch nodeunit nose nose2 nosetests playwright poku py.test pytest qunit robot stestr tap
        tape testem testr trial twist unittest uvu vitest vows ward wdio web-test-runner wtr xvfb-maybe
        zope-testrunner zora ng:test bun:test deno:test hatch:test tsdx:test kcd-scripts:test django:test
        django-admin:test flask:test manage.py:test,jenkins setup.py:test,pytest,nosetests""",
    LINT: """
        api-extractor attw autoflake autopep8 bandit biome black blacken-docs bundlesize check-manifest
        codespell cost-of-modules cspell depcheck deptry doc8 dprint editorconfig-checker es-check flake8
        interrogate isort jscs knip lint-staged madge manypkg oxfmt pip-audit pre-commit prek prettier
        prettierx pycodestyle pydocstyle pyroma pyupgrade remark reuse ruff safety semgrep semistandard
        shellcheck size-limit slotscheck snazzy sort-package-json standard syncpack template-oss-check
        towncrier ts-standard typos vale vulture xo yapf zizmor next:lint hatch:fmt twine:check""",
    TYPES: """
        basedpyright check-dts dmypy dtslint flow glint mypy pyre pyrefly pyright pytype svelte-check tsc
        tsd tsd-lite tsgo tstyche ty type-coverage typecheck vue-tsc nuxt:typecheck nuxi:typecheck
        astro:check""",
    BUILD: """
        babel browserify cython cythonize esbuild lessc microbundle napi ng-packagr ngc node-gyp node-sass
        postcss preconstruct prebuildify protoc pyproject-build rollup sass swc terser tsdown tshy tsup
        uglifyjs unbuild wasm-pack webpack vite:build next:build nuxt:build,prepare nuxi:build,prepare
        astro:build ng:build nest:build parcel:build svelte-kit:sync prisma:generate maturin:develop
        bun:build hatch:build tsdx:build kcd-scripts:build
        setup.py:build,build_ext,build_py,compile_catalog""",
    "noise": """
        pip pip3 pipx conda mamba micromamba apt apt-get apk brew gem bundle corepack nvm pyenv volta
        rustup cargo go swift composer mvn gradle dotnet virtualenv venv ensurepip codecov coveralls
        diff-cover echo printf ls cat pwd env uname which type command date id sleep wait exit set shopt
        true test [ source . unset ulimit trap kill killall pkill eval hash head tail grep find tree wc
        sort diff file tee xargs sudo docker docker-compose podman kubectl helm terraform aws gcloud az gh
        curl wget ssh scp rsync nc openssl gpg systemctl service redis-server redis-cli mongod mongo mysql
        psql createdb pg_isready memcached vercel netlify heroku firebase wrangler semantic-release
        release-it changeset open nohup serve http-server mkdocs sphinx-build typedoc jsdoc documentation
        storybook husky only-allow wait-on browserslist nyc:report,instrument,check-coverage,merge
        c8:report,check-coverage lerna:publish,version,bootstrap
        coverage:report,xml,html,combine,erase,json,lcov,annotate,debug pre-commit:install prek:install
        vitest:list,bench cypress:install,open,verify
        playwright:install,install-deps,merge-reports,show-report puppeteer:browsers
        uv:sync,pip,lock,venv,python,tool,cache,build,publish,export,add,self
        git:add,am,apply,branch,checkout,clean,clone
        git:commit,describe,diff,fetch,log,ls-files,merge,pull,push,remote,reset,restore,rev-parse,show,stash,status
        git:submodule,switch
        poetry:install,sync,lock,config,env,self,publish,build,add,update,check,show,export
        pdm:install,sync,lock,config,use,build,publish,add,update pipenv:install,sync,lock,update,check
        tox:list,config hatch:env,version,config,publish rye:sync,lock,build flit:install,build,publish
        twine:upload""",
}  # fmt: skip
_USES: Mapping[str, _Use] = {
    f"{entry.partition(':')[0]} {verb}".strip(): use
    for use, names in _PROGRAMS.items()
    for entry in names.split()
    for verb in entry.partition(":")[2].split(",")
}
_LINTERS = re.compile(r"[\w-]*lint[\w-]*\d?")

#: Runners that call tasks by name: the name says what the task is for.
_BY_TASK = words_of("""
    craco doit ember gatsby gmake grunt gulp inv invoke jake just lage lerna make moon nx
    react-app-rewired react-scripts rush task turbo umi vue-cli-service waf wireit wp-scripts""")
INTERPRETERS = re.compile(
    r"(?:python|pypy)[\d.]*t?|py|node(?:js)?|ts-node(?:-esm)?|tsx|babel-node|bun|deno|(?:ba)?sh|esno|jiti|swc-node|coffee"
)
#: Options of interpreters whose value is the next word.
_VALUED = words_of("-W -X -r --require --import --loader -P --project --tsconfig -C")
#: Arguments with which a runner runs nothing.
_LISTS = words_of("--collect-only --co --fixtures --listTests --list-tests --dryrun --dry-run")
_TEST_MODULE = re.compile(r"(?:^|\.)(?:tests?|testing|runtests)(?:\.|$)|_tests?$")
_TEST_PATH = re.compile(
    r"(?i)(?:^|[/._:-])(?:run[-_]?)?(?:all|unit|js|py|legacy|node)?[-_]?(?:tests?|specs?|testing|unittests?)(?:[/._:-]|$)|runtests"
)
#: Names of scripts that serve tests without being tests.
_AROUND_TESTS = re.compile(
    r"(?i)(?:init|prepare|setup|install|gen|make|fetch|download|start|wait|clean|create|collect|merge|upload|update"
    r"|deploy|build|list|report|check|compile|copy|get|publish|release|bump|sync|lint|extract|count|compare|summar"
    r"|(?:run[-_]?)?bench|perf|print|show|find|notify|post|send|dump|save|load)"
)


def _named(words: str) -> re.Pattern[str]:
    """Return an expression for a part of a task's name."""
    return re.compile(rf"(?:^|[:_.-])(?:{words})(?:[:_.-]|$)")


#: Parts of tasks' names, in the order in which they decide.
_TASKS: tuple[tuple[CommandKind | None, re.Pattern[str]], ...] = (
    (None, _named(r"perf\w*|bench\w*|size\w*|report\w*|watch|debug|clean|upload|docs?|install|publish"
                  r"|deploy|serve")),
    (BUILD, re.compile(r"^(?:build|compile|generate|prepare)[:_.-](?!and)")),
    (LINT, _named(r"e?s?lint|format|fmt|style|prettier|audit|spell\w*|standard")),
    (TYPES, _named(r"types?|type-?check|tsc|tsd|typing|mypy|pyright|dts\w*|flow")),
    (TESTS, _named(r"v*tests?|unit|unit-?tests?|specs?|jest|mocha|vitest|pytest|ava|karma|tape?|ci|cov"
                   r"|cover(?:age)?|integration|e2e|runtests")),
    (BUILD, _named(r"build\w*|compile\w*|prepare|bundle\w*|generate\w*|gen|codegen|dist|transpile|proto\w*"
                   r"|cython\w*|wasm|prebuild|messages|i18n")),
)  # fmt: skip


def task_kind(name: str) -> CommandKind | None:
    """Return the purpose that a task's name states (``test:unit``, ``lint-js``); None if unknown."""
    return next((kind for kind, pattern in _TASKS if pattern.search(name.lower())), None)


def program(word: str) -> str:
    """Return a program's name without its folder and ending."""
    return re.sub(r"\.(?:[cm]?js|exe|cmd)$", "", word.rstrip("/").rpartition("/")[2])


def after_options(words: tuple[str, ...], at: int, valued: frozenset[str] = frozenset()) -> int:
    """Return the index of the first word that is neither an option nor an option's value."""
    while at < len(words) and words[at].startswith("-"):
        if words[at] == "--":
            return at + 1
        at += 2 if words[at] in valued else 1
    return at


def bare(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return words without a starter of locally installed programs, such as npx."""
    if words and program(words[0]) in ("npx", "bunx", "pnpx"):
        rest = words[after_options(words, 1, frozenset(("-p", "--package", "-c"))) :]
        return (re.sub(r"(?<=.)@[\w.^~-]+$", "", rest[0]), *rest[1:]) if rest else words
    return words


def use_of(words: tuple[str, ...]) -> _Use:
    """Return the purpose of a command without wrappers, by the program that it runs; None if unknown."""
    if not (words := bare(words)):
        return None
    name, rest = program(words[0]), words[1:]
    verbs = [word for word in rest if not word.startswith("-")]
    if {"--version", "-V", "--help"}.intersection(rest[:2]) or _LISTS.intersection(rest):
        return "noise"
    if f"{name} {verbs[0] if verbs else ''}" in _USES:
        if words[0] == "git" and {"--exit-code", "--quiet"}.intersection(rest):
            return LINT
        return _USES[f"{name} {verbs[0]}"]
    if name in NPM_CLIENTS and (not verbs or verbs[0] in CLIENT_VERBS):
        return "noise"
    if name in ("node", "tsx") and any(
        re.match(r"--test(?:$|-(?!reporter))", argument) for argument in rest
    ):
        return TESTS
    if name in _BY_TASK:
        tasks = [word for word in verbs if word not in ("run", "run-many", "affected", "exec")]
        targets = re.findall(r"(?:^| )(?:-t|--targets?)[= ]?(\S+)", " ".join(rest))
        return next(filter(None, map(task_kind, [*targets, *tasks[:2]])), None)
    if INTERPRETERS.fullmatch(name):
        return _of_interpreter(name, rest)
    if name in ("tsc", "vue-tsc") and {"-b", "--build"}.intersection(rest):
        return TYPES if "--noEmit" in rest else BUILD
    use: _Use = LINT if _LINTERS.fullmatch(name) and name != "dtslint" else _USES.get(name)
    if use is None and rest[:1] in (("-v",), ("version",)):
        return "noise"
    return None if "/" in words[0] and use == "noise" else use


def _of_interpreter(interpreter: str, rest: tuple[str, ...]) -> _Use:
    at = 0
    while at < len(rest) and rest[at].startswith("-"):
        if interpreter.startswith("py") and re.fullmatch(r"-[bBdEhiIOqsSuvx]*m", rest[at]):
            use = use_of(rest[at + 1 :])
            return use or (TESTS if _TEST_MODULE.search("".join(rest[at + 1 : at + 2])) else None)
        if rest[at] in ("-c", "-e", "-p", "--eval", "--print"):
            return "code"
        at += 2 if rest[at] in _VALUED else 1
    if at >= len(rest):
        return "noise"
    script, arguments = rest[at], rest[at + 1 :]
    if not INTERPRETERS.fullmatch(program(script)):
        use = use_of((PurePosixPath(script).name.removesuffix(".py"), *arguments))
        use = use or use_of((PurePosixPath(script).name, *arguments[:1]))
        if use not in (None, "noise"):
            return use
    if re.match(r"node|ts|babel|bun|deno", interpreter):  # node bin/hook.js mocha test
        runners = (_USES.get(program(word)) for word in arguments)
        return next((use for use in runners if use in (TESTS, LINT, TYPES)), None)
    return None


def script_of(words: tuple[str, ...]) -> str:
    """Return the path of the script that a command runs, by an interpreter or by itself; "" if none."""
    words = bare(words)
    if words and INTERPRETERS.fullmatch(program(words[0])):
        at = after_options(words, 1, _VALUED)
        return words[at] if at < len(words) and "-m" not in words[1:at] else ""
    is_path = bool(words) and (words[0].endswith((".py", ".sh")) or "/" in words[0])
    return words[0] if is_path else ""


def script_kind(path: str) -> CommandKind | None:
    """Return the purpose that a script's path states; None if unknown."""
    name = PurePosixPath(path).name
    kind = task_kind(name.partition(".")[0])
    if name in ("manage.py", "setup.py") or _AROUND_TESTS.match(name):
        return None
    if kind not in (LINT, TYPES) and _TEST_PATH.search(re.sub(r"^\.{1,2}/", "", path)):
        return TESTS
    return kind


#: Commands that prepare something tests may need, unless they only serve a release or a page.
_PREPARES = re.compile(
    r"""(?x)^(?:cp|mkdir|touch|ln|chmod|git\s+(?:config|init|tag))\s|
    \b(?:build|build_ext|build_\w+|compile\w*|cythonize|generate\w*|generat\w+|codegen|prepare|bundle|migrate|makemigrations
       |upgrade\s+head|collectstatic|compilemessages|protoc|transpile|gen|proto\w*|develop|prebuild|buildmessages|db\s+upgrade
       |loaddata|createcachetable|svelte-kit\s+sync|webpack|rollup|tsup|wasm|init-tests\S*)\b"""
)  # fmt: skip
_PREPARES_NOT = re.compile(
    r"-m\s+build\b|docs?\b|storybook|docker|electron-builder|\bdeploy|\brelease|publish|\bserve\b|\bbench"
)
_OUTSIDE = re.compile(
    r"\b(?:docker(?:-compose)?|podman|vagrant|kubectl|act)\s|\b(?:curl|wget)\b[^\n|]*\|\s*(?:ba)?sh"
    r"|\bsudo\s|\.github/|\bcodecov\b|\bdevbox\s|playwright\s+install|\bgh\s+(?:api|release|pr)\b"
)


def prepares(text: str) -> bool:
    """Return whether a command makes what tests may need: a build, generated code, a migrated database."""
    return bool(_PREPARES.search(text)) and not _PREPARES_NOT.search(text)


def needs_outside(text: str) -> bool:
    """Return whether a command clearly needs a container or the network."""
    return bool(_OUTSIDE.search(text))


_NODE = re.compile(
    r"\b(?:node|npx|npm|pnpm|yarn|bunx?|deno|jlpm|jest|vitest|mocha|ava|tap|tape|jasmine|karma|borp|eslint|prettier|tsc|tsd|xo"
    r"|standard|tsx|ts-node|uvu|qunit|cypress|playwright|wtr|react-scripts|lerna|turbo|nx|webpack|rollup|tsup|vue-tsc|wdio|c8"
    r"|nyc|ng)\b"
)  # fmt: skip
_PYTHON = re.compile(
    r"\b(?:python[\d.]*|py\.test|pytest|tox|nox|hatch|poetry|pdm|uv|pipenv|nosetests|nose2|trial|stestr|behave|robot"
    r"|django-admin|mypy|flake8|ruff|black|isort|pylint|pyright|bandit|maturin|cython\w*)\b|\w\.py\b"
)


def runtime_of(text: str) -> str:
    """Return what runs a command, by the first program of it that is known: ``python``, ``node`` or ""."""
    node, python = _NODE.search(text), _PYTHON.search(text)
    if node and (not python or node.start() < python.start()):
        return "node"
    return "python" if python else ""


def mentions_runner(text: str) -> bool:
    """Return whether a text that can't be split into words contains a test runner as a word."""
    words = re.findall(r"[\w./@-]+", re.sub(r"://\S+", "", text))
    runners = r"\b(?:node --test|manage\.py test|(?:npm|yarn|pnpm|make) (?:run )?test\b|tox|nox)\b"
    return any(_USES.get(program(word)) is TESTS for word in words) or bool(
        re.search(runners, text)
    )
