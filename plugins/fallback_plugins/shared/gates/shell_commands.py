"""Shell text, read and never run: the commands that it consists of, and what each of them shows.

A script is cut at line ends, ``&&`` and ``;`` outside of quotes. A pipe and ``||`` stay in their command,
and a compound command (``if`` … ``fi``) is one that isn't plain.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath

#: Characters of one script: a step of CI has some lines. More is left out.
MAX_SCRIPT_CHARS = 20_000


class CommandKind(StrEnum):
    """What a command shows. Each kind is judged by itself: an error of a type check is no failing test."""

    TESTS = "tests"
    TYPES = "types"
    LINT = "lint"
    BUILD = "build"


_ENDS = {
    "if": "fi",
    "case": "esac",
    "{": "}",
    "for": "done",
    "while": "done",
    "until": "done",
    "select": "done",
}
_CUTS = frozenset({"|", "||", "|&", ">", ">>", "<", "2>", "2>&1", "&>", "1>", "1>&2", ">&2"})


@dataclass(frozen=True)
class ShellCommand:
    """One command. ``words``: the values of its words up to a pipe or redirection; ``starts``: the index of
    each in ``text``. Both are empty for a compound command. ``is_background``: it ends with ``&``."""

    text: str
    words: tuple[str, ...] = ()
    starts: tuple[int, ...] = ()
    is_background: bool = False

    def without(self, count: int) -> "ShellCommand":
        """Return the command without its first words."""
        if not 0 < count < len(self.words):
            return self if count <= 0 else ShellCommand("")
        at = self.starts[count]
        starts = tuple(start - at for start in self.starts[count:])
        return ShellCommand(self.text[at:], self.words[count:], starts, self.is_background)

    def replaced(self, count: int, by: str) -> "ShellCommand":
        """Return the command with other text for its first words."""
        rest = self.text[self.starts[count] :] if count < len(self.words) else self._behind(count)
        return simple(f"{by} {rest}".strip())

    def _behind(self, count: int) -> str:
        """Return what follows the last word: a pipe, a redirection."""
        end = self.starts[count - 1] if count else 0
        words = list(_words(self.text[end:]))
        return self.text[end + words[1][0] :] if len(words) > 1 else ""


_REDIRECTION = re.compile(r"\d?[<>]")


def simple(text: str) -> ShellCommand:
    """Return one command of plain text."""
    words, starts = [], []
    for start, value in _words(text):
        if value in _CUTS or _REDIRECTION.match(text, start):
            break
        words.append(value)
        starts.append(start)
    return ShellCommand(text, tuple(words), tuple(starts))


def split_script(script: str) -> list[ShellCommand]:
    """Return the commands of a script in their order; empty if it is too long or can't be read."""
    if len(script) > MAX_SCRIPT_CHARS or "\0" in script:
        return []
    parts = list(_parts(re.sub(r"\\\r?\n[ \t]*", " ", script.replace("\r\n", "\n"))))
    if any(re.match(r"[\w-]+\s*\(\)|function\s", text) or "<<" in text for text, _ in parts):
        return [ShellCommand(script.strip())]
    commands: list[ShellCommand] = []
    at = 0
    while at < len(parts):
        text, end = parts[at]
        first = text.split(None, 1)[0] if text else ""
        at += 1
        opened_after = re.search(r"(?:\|\||\|)\s*(if|for|while|until|case|\{)(?=\s)", text)
        first = opened_after[1] if opened_after else first
        if first in _ENDS:
            closing, depth = _ENDS[first], 1
            whole = [text, end]
            while at < len(parts) and depth:
                text, end = parts[at]
                at += 1
                word = re.match(r"(?:(?:then|else|do)\s+)?([\w{}]*)", text)
                opened = word[1] if word else ""
                depth += (opened in _ENDS and _ENDS[opened] == closing) - text.startswith(closing)
                whole += [text, end]
            joined = "".join(f"{part} " if part != "\n" else "\n" for part in whole)
            joined = joined.strip().rstrip(";")
            commands.append(simple(joined) if opened_after else ShellCommand(joined))
        elif first.startswith(("(", "[[")):
            commands.append(ShellCommand(text))
        elif text:
            command = simple(text)
            commands.append(ShellCommand(text, command.words, command.starts, end == "&"))
    return commands


def _parts(script: str) -> Iterator[tuple[str, str]]:
    """Yield each part and the separator after it."""
    quote, depth, start, at = "", 0, 0, 0
    while at < len(script):
        char = script[at]
        if char == "\\" and quote != "'":
            at += 2
            continue
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"`":
            quote = char
        elif char == "(":
            depth += 1
        elif char == ")":
            depth = max(0, depth - 1)
        elif char == "#" and (at == 0 or script[at - 1] in " \t\n;"):
            end = script.find("\n", at)
            end = len(script) if end < 0 else end
            script = script[:at] + script[end:]
            continue
        elif not depth and char in "\n;&" and not (char == "&" and _is_redirection(script, at)):
            separator = "&&" if script.startswith("&&", at) else char
            before = script[start:at].strip()
            if char == "\n" and before.endswith(("|", "&&")):
                at += 1
                continue
            if before or separator != "\n":
                yield before, separator
            at += len(separator)
            start = at
            continue
        at += 1
    if script[start:].strip():
        yield script[start:].strip(), ""


def _is_redirection(script: str, at: int) -> bool:
    return (at > 0 and script[at - 1] in "><|") or script[at + 1 : at + 2] == ">"


def _words(text: str) -> Iterator[tuple[int, str]]:
    """Yield (index, value) of each word. A value has no quotes; expansions stay as they are."""
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        start, value, quote, depth = at, [], "", 0
        while at < len(text):
            char = text[at]
            if char == "\\" and quote != "'" and at + 1 < len(text):
                value.append(text[at + 1] if not quote else text[at : at + 2])
                at += 2
                continue
            if quote:
                value.append(char if char != quote or char == "`" else "")
                quote = "" if char == quote else quote
            elif char in "'\"`":
                quote = char
                value.append(char if char == "`" else "")
            elif char.isspace() and not depth:
                break
            else:
                depth += (char in "({") - (char in ")}" and depth > 0)
                value.append(char)
            at += 1
        yield start, "".join(value)


#: Programs by what they show. A project names few others.
_TESTS = frozenset(
    """
    _mocha aegir airtap aunty ava avocado baretest behave borp brittle codeceptjs cucumber-js cypress
    electron-mocha green hereby jasmine jasmine-node jest jest-cli karma lab lettuce loki mocha mocha-
    parallel-tests mochapack ng-test nightwatch nodeunit nose nose2 nosetests ostestr pabot playwright
    poku py.test pytest pytest-3 qunit robot stestr tap tape tape-run tapzero testcafe testem testr
    trial twist unittest unittest2 uvu vitest vows ward wdio web-test-runner wtr xvfb-maybe zope-
    testrunner zora zuul
    """.split()  # noqa: SIM905 (one name per string would be ten times as long)
)
_LINT = frozenset(
    """
    actionlint addlicense alex api-extractor attw audit-ci autoflake autopep8 bandit biome black
    blacken-docs bundlesize cfn-lint check-manifest codespell commitlint cost-of-modules cspell
    curlylint deadcode depcheck depcruise dependency-check dependency-cruiser deptry djhtml djlint doc8
    docformatter dprint eclint ecmalint editorconfig-checker es-check eslint eslint-config-prettier
    eslint_d flake8 flake8-black flynt hadolint installed-check interrogate isort jscs jshint jsonlint
    knip license-checker linkcheck lint-imports lint-staged lockfile-lint ls-lint lychee madge manypkg
    markdown-link-check markdownlint markdownlint-cli2 npm-audit npmPkgJsonLint oxc oxfmt oxlint pip-
    audit pre-commit prek prettier prettierx proselint publint pycodestyle pydocstyle pylint pyproject-
    fmt pyroma pyupgrade refurb remark reuse rome rstcheck ruff safety semgrep semistandard shellcheck
    size-limit slotscheck snazzy sort-package-json sourcery sp-repo-review standard standardx stylelint
    syncpack template-oss-check textlint towncrier ts-standard tslint typos vale validate-pyproject
    vulture xo yamllint yapf zizmor
    """.split()  # noqa: SIM905 (one name per string would be ten times as long)
)
_TYPES = frozenset(
    """
    basedpyright check-dts dmypy dtslint flow glint mypy pyre pyrefly pyright pytype stubtest svelte-
    check tsc tsd tsd-lite tsgo tstyche ttsc ty type-coverage typecheck vue-tsc zuban
    """.split()  # noqa: SIM905 (one name per string would be ten times as long)
)
_BUILD = frozenset(
    """
    babel bili bob browserify cython cythonize cythonized duel esbuild father lessc microbundle napi ncc
    ng-packagr ngc node-gyp node-sass pkgroll postcss prebuildify preconstruct protoc pyproject-build
    rollup sass swc terser tsdown tshy tsup uglifyjs unbuild wasm-pack webpack zshy
    """.split()  # noqa: SIM905 (one name per string would be ten times as long)
)
#: Programs with several uses: what the first words after them show.
_BY_VERB: Mapping[str, Mapping[str, CommandKind | None]] = {
    "vite": {"build": CommandKind.BUILD},
    "next": {"build": CommandKind.BUILD, "lint": CommandKind.LINT},
    "nuxt": {"build": CommandKind.BUILD, "typecheck": CommandKind.TYPES, "prepare": CommandKind.BUILD},
    "nuxi": {"build": CommandKind.BUILD, "typecheck": CommandKind.TYPES, "prepare": CommandKind.BUILD},
    "astro": {"check": CommandKind.TYPES, "build": CommandKind.BUILD},
    "ng": {"test": CommandKind.TESTS, "lint": CommandKind.LINT, "build": CommandKind.BUILD},
    "nest": {"build": CommandKind.BUILD},
    "parcel": {"build": CommandKind.BUILD},
    "svelte-kit": {"sync": CommandKind.BUILD},
    "electron-vite": {"build": CommandKind.BUILD},
    "prisma": {"generate": CommandKind.BUILD},
    "maturin": {"develop": CommandKind.BUILD},
    "django-admin": {"test": CommandKind.TESTS, "compilemessages": CommandKind.BUILD},
    "bun": {"test": CommandKind.TESTS, "build": CommandKind.BUILD},
    "deno": {"test": CommandKind.TESTS, "lint": CommandKind.LINT, "fmt": CommandKind.LINT},
    "twine": {"check": CommandKind.LINT},
    "stencil": {"test": CommandKind.TESTS, "build": CommandKind.BUILD},
    "tsdx": {"test": CommandKind.TESTS, "lint": CommandKind.LINT, "build": CommandKind.BUILD},
    "dts": {"test": CommandKind.TESTS, "lint": CommandKind.LINT, "build": CommandKind.BUILD},
    "aegir": {"lint": CommandKind.LINT, "build": CommandKind.BUILD, "dep-check": CommandKind.LINT},
    "kcd-scripts": {"test": CommandKind.TESTS, "lint": CommandKind.LINT, "build": CommandKind.BUILD},
    "hatch": {"fmt": CommandKind.LINT, "test": CommandKind.TESTS, "build": CommandKind.BUILD},
    "babel-node": {},
    "pre-commit": {"install": None, "autoupdate": None, "install-hooks": None},
    "prek": {"install": None},
    "vitest": {"list": None, "bench": None},
    "jest": {},
    "playwright": {"install": None, "install-deps": None, "merge-reports": None, "show-report": None},
    "cypress": {"install": None, "open": None, "verify": None},
    "git": {"diff": CommandKind.LINT},
}  # fmt: skip
_BY_TASK = frozenset(
    """
    backpack craco doit duty ember gatsby gmake grunt gulp inv invoke jake just lage lerna mage make
    moon nx react-app-rewired react-scripts rescripts rush task turbo ultra umi umi-test vue-cli-service
    waf wireit wp-scripts
    """.split()  # noqa: SIM905 (one name per string would be ten times as long)
)
INTERPRETERS = re.compile(
    r"(?:python|pypy)[\d.]*t?|py|node(?:js)?|ts-node(?:-esm)?|tsx|babel-node|bun|deno|bash|sh|esno|jiti|swc-node|coffee"
)
_TEST_PATH = re.compile(
    r"(?:^|[/._:-])(?:run[-_]?)?(?:all|unit|js|py|legacy|node)?[-_]?(?:tests?|specs?|testing|unittests?)(?:[/._:-]|$)|runtests",
    re.IGNORECASE,
)


def _named(words: str) -> re.Pattern[str]:
    """Return an expression for a part of a task's name."""
    return re.compile(rf"(?:^|[:_.-])(?:{words})(?:[:_.-]|$)")


#: Parts of tasks' names, in the order in which they decide.
_TASKS = (
    (CommandKind.LINT, _named(r"e?s?lint|format|fmt|style|prettier|audit|spell\w*|standard")),
    (CommandKind.TYPES, _named(r"types?|type-?check|tsc|tsd|typing|mypy|pyright|dts\w*|flow")),
    (
        CommandKind.TESTS,
        _named(
            r"v*tests?|unit|unit-?tests?|specs?|jest|mocha|vitest|pytest|ava|karma|tape?|ci|coverage|cov|cover"
            r"|integration|e2e|runtests"
        ),
    ),
    (
        CommandKind.BUILD,
        _named(
            r"build\w*|compile\w*|prepare|bundle\w*|generate\w*|gen|codegen|dist|transpile|proto\w*|cython\w*"
            r"|wasm|prebuild|messages|i18n"
        ),
    ),
)
_MEASURES = re.compile(
    r"(?:^|[:_.-])(?:perf\w*|bench\w*|size\w*|report\w*|watch|debug|clean|upload|docs?|install|publish|deploy|serve)(?:[:_.-]|$)"
)


def task_kind(name: str) -> CommandKind | None:
    """Return what a task's name says it is for (``test:unit``, ``lint-js``); None: nothing known."""
    if _MEASURES.search(name.lower()):
        return None
    if re.match(r"(?:build|compile|generate|prepare)[:_.-](?!and)", name.lower()):
        return CommandKind.BUILD
    return next((kind for kind, pattern in _TASKS if pattern.search(name.lower())), None)


def program(word: str) -> str:
    """Return a program's name without its folder and ending."""
    return re.sub(r"\.(?:[cm]?js|exe|cmd)$", "", PurePosixPath(word).name)


#: Arguments by which a runner runs nothing.
LISTS = frozenset(
    {
        "--collect-only",
        "--co",
        "--fixtures",
        "--dead-fixtures",
        "--listTests",
        "--list-tests",
        "--dryrun",
        "--dry-run",
    }
)


def command_kind(words: tuple[str, ...]) -> CommandKind | None:
    """Return what a command without wrappers shows by what it runs; None: something else, or not known."""
    if not words:
        return None
    name, rest = program(words[0]), words[1:]
    verbs = [word for word in rest if not word.startswith("-")]
    if {"--version", "-V", "--help"}.intersection(rest[:2]) or LISTS.intersection(rest):
        return None
    if (by_verb := _BY_VERB.get(name)) is not None and verbs and verbs[0] in by_verb:
        kind = by_verb[verbs[0]]
        return (
            None if name == "git" and "--exit-code" not in rest and "--quiet" not in rest else kind
        )
    if name == "node" and any(re.match(r"--test(?:$|-(?!reporter))", word) for word in rest):
        return CommandKind.TESTS
    if name in _BY_TASK:
        tasks = [word for word in verbs if word not in ("run", "run-many", "affected", "exec")]
        targets = re.findall(r"(?:^| )(?:-t|--targets?)[= ]?(\S+)", " ".join(rest))
        return next(filter(None, map(task_kind, [*targets, *tasks[:2]])), None)
    if name == "tsx" and "--test" in rest:
        return CommandKind.TESTS
    if INTERPRETERS.fullmatch(name):
        return _kind_of_script(name, rest)
    for kind, programs in (
        (CommandKind.TESTS, _TESTS),
        (CommandKind.LINT, _LINT),
        (CommandKind.TYPES, _TYPES),
        (CommandKind.BUILD, _BUILD),
    ):
        if name in programs:
            return _of_compiler(rest) if name in ("tsc", "vue-tsc") else kind
    if name == "manage.py" or words[0].endswith((".py", ".sh")) or "/" in words[0]:
        return _kind_of_script("", words)
    return None


def _of_compiler(rest: tuple[str, ...]) -> CommandKind:
    """``tsc`` checks types in any case; what it writes is for ``needs_before`` to see."""
    is_build = bool({"-b", "--build"}.intersection(rest)) and "--noEmit" not in rest
    return CommandKind.BUILD if is_build else CommandKind.TYPES


#: Scripts around tests that are none.
_PREPARES_TESTS = re.compile(
    r"^(?:init|prepare|setup|install|gen|make|fetch|download|start|wait|clean|create|collect|merge|upload|update|deploy|build|list|report"
    r"|check|compile|copy|get|publish|release|bump|sync|lint|extract|count|compare|summar|bench|perf|print|show|find|notify|post|send|dump|save|load|run[-_]?bench)",
    re.IGNORECASE,
)

_BUILDS = re.compile(r"build|gen|compile|proto|cython|bundle|transpile", re.IGNORECASE)

#: Options of interpreters whose value is the next word.
_VALUED = frozenset(
    {"-W", "-X", "-r", "--require", "--import", "--loader", "-P", "--project", "--tsconfig", "-C"}
)


def _kind_of_script(interpreter: str, rest: tuple[str, ...]) -> CommandKind | None:
    """Return what a script, or a module (``-m``), is for by its name and its first argument."""
    at = 0
    while at < len(rest) and rest[at].startswith("-"):
        if re.fullmatch(r"-[bBdEhiIOqsSuvx]*m", rest[at]) and interpreter.startswith(
            ("py", "python")
        ):
            module, arguments = rest[at + 1 : at + 2], rest[at + 2 :]
            if not module:
                return None
            if module[0] in ("django", "flask") and arguments[:1]:
                return CommandKind.TESTS if arguments[0] == "test" else None
            named = command_kind((module[0], *arguments))
            is_test = re.search(r"(?:^|\.)(?:tests?|testing|runtests)(?:\.|$)|_tests?$", module[0])
            return named or (CommandKind.TESTS if is_test else None)
        if rest[at] in ("-c", "-e", "-p", "--eval", "--print"):
            return None
        at += 2 if rest[at] in _VALUED else 1
    if at >= len(rest):
        return None
    script, arguments = rest[at], rest[at + 1 :]
    name = PurePosixPath(script).name
    verb = next((word for word in arguments if not word.startswith("-")), "")
    if name == "manage.py":
        return CommandKind.TESTS if verb in ("test", "jenkins") else None
    if name == "setup.py":
        if verb in ("test", "pytest", "nosetests"):
            return CommandKind.TESTS
        return CommandKind.BUILD if verb.startswith(("build", "compile")) else None
    named = command_kind((name.removesuffix(".py"), *arguments)) if interpreter else None
    if named is not None:
        return named
    if interpreter.startswith(("node", "ts", "babel")) or interpreter in ("bun", "deno"):
        for word in arguments:  # a script that starts a runner: node bin/hook.js mocha test
            if program(word) in _TESTS | _LINT | _TYPES:
                return command_kind((word,))
    if _PREPARES_TESTS.search(name):
        return None
    if (kind := task_kind(name.partition(".")[0])) in (CommandKind.LINT, CommandKind.TYPES):
        return kind
    if _TEST_PATH.search(re.sub(r"^\.{1,2}/", "", script)):
        return CommandKind.TESTS
    kind = task_kind(name.partition(".")[0])
    if kind is CommandKind.BUILD and (not _BUILDS.match(name) or "--check" in arguments):
        return None
    return kind


#: Commands that tests don't need: what installs, sets tools up, prints, uploads or releases.
_NOISE = re.compile(
    r"""(?x)
    (?:python[\d.]*\s+(?:-\w+\s+)*-m\s+)?
    (?:pip[\d.]*|pipx|conda|mamba|micromamba|apt|apt-get|apk|yum|dnf|brew|choco|gem|bundle|corepack|nvm|pyenv|asdf|volta|fnm|rustup|
       cargo|go|swift|composer|php|mvn|gradle|dotnet|virtualenv|venv|ensurepip|easy_install|codecov\w*|coveralls|diff-cover|
       nyc\s+report|c8\s+report|coverage\s+(?:report|xml|html|combine|erase|json|lcov|annotate|debug)|
       echo|printf|ls|cat|pwd|env|printenv|uname|which|type|command|date|whoami|id|df|free|lscpu|sleep|wait|exit|set|shopt|true|
       test|\[|source|\.|unset|ulimit|trap|kill\w*|pkill|eval|alias|hash|head|tail|grep|find|tree|wc|sort|diff|file|stat|du|tee|xargs|
       sudo|su|docker\S*|podman|kubectl|helm|terraform|aws|gcloud|az|gh|hub|curl|wget|ssh\S*|scp|rsync|nc|openssl|gpg\S*|
       systemctl|service|redis-server|redis-cli|mongod?|mysqld?|psql|createdb|pg_\w+|rabbitmq\S*|memcached|
       vercel|netlify|heroku|firebase|wrangler|semantic-release|release-it|changeset|lerna\s+(?:publish|version|bootstrap)|np|
       gulp-cli|open|xdg-open|nohup|serve|http-server|mkdocs|sphinx-\w+|typedoc|jsdoc|documentation|storybook|
       (?:npm|pnpm|yarn|bun|jlpm)(?:\s+(?:install|ci|i|add|config|set|cache|link|publish|pack|version|login|whoami|audit|dedupe|why|ls|list|prune|
         exec\s+playwright\s+install|npx\s+playwright\s+install|init|rebuild|up|update|upgrade|outdated|policies|plugin|import|import\b)\b.*|\s*$|(?:\s+--?[\w-]+(?:=\S+)?)+\s*$)|
       npx\s+(?:--?\S+\s+)*(?:playwright\s+install|puppeteer\s+browsers|cypress\s+(?:install|verify)|browserslist|changeset|semantic-release|codecov|coveralls|only-allow|wait-on|lerna\s+bootstrap)|
       (?:uv|uvx)\s+(?:sync|pip|lock|venv|python|tool|cache|build|publish|export|tree|add|self|version)|
       (?:poetry|pdm|pipenv|rye|hatch|flit|nox|tox|twine)\s+(?:install|sync|lock|config|env|self|export|publish|build|upload|add|update|use|version|show|check|cache|python|dep|shell|--version|--install-deps|--list|-l\b)|
       git\s+(?!config|init|tag).*|playwright\s+install|husky|nyc\s+instrument
    )(?:\s|$)""",
    re.VERBOSE,
)  # fmt: skip
#: Of the others, those that prepare something which tests may need.
_PREPARES = re.compile(
    r"""(?x)^(?:cp|mkdir|touch|ln|chmod|git\s+(?:config|init))\s|
    \b(?:build|build_ext|build_\w+|compile\w*|cythonize|generate\w*|generat\w+|codegen|prepare|bundle|migrate|makemigrations|upgrade\s+head|
       collectstatic|compilemessages|protoc|transpile|gen|proto\w*|develop|prebuild|buildmessages|db\s+upgrade|loaddata|createcachetable|
       svelte-kit\s+sync|webpack|rollup|tsup|wasm|init-tests\S*)\b""",
    re.VERBOSE,
)  # fmt: skip
_PREPARES_NOT = re.compile(
    r"-m\s+build\b|docs?\b|storybook|docker|electron-builder|\bdeploy|\brelease|publish|\bserve\b|\bbench"
)


def needs_nothing(command: ShellCommand) -> bool:
    """Does a command only install, set up, print, upload or release, or need more than this machine?"""
    text = command.text
    return bool(_NOISE.match(text)) or needs_outside(text)


def needs_outside(text: str) -> bool:
    """Does a command plainly need a container or the network?"""
    return bool(
        re.search(
            r"\b(?:docker(?:-compose)?|podman|vagrant|kubectl|act)\s|\b(?:curl|wget)\b[^\n]*\|\s*(?:ba)?sh"
            r"|\bsudo\s|\.github/|\bcodecov\b|\bdevbox\s|playwright\s+install|\bgh\s+(?:api|release|pr)\b",
            text,
        )
    )


def says_nothing(words: tuple[str, ...]) -> bool:
    """Does a command print something of a program, or run a line of code?"""
    name = program(words[0]) if words else ""
    return bool(
        {"--version", "-V", "-v", "--help", "version"}.intersection(words[1:2])
        or (INTERPRETERS.fullmatch(name) and {"-c", "-e", "-p", "--eval"}.intersection(words[1:4]))
    )


def prepares(command: ShellCommand) -> bool:
    """Does a command make what tests may need: a build, generated code, a migrated database?"""
    text = command.text
    return bool(_PREPARES.search(text)) and not _PREPARES_NOT.search(text)


_NODE = re.compile(
    r"\b(?:node|npx|npm|pnpm|yarn|bunx?|deno|jlpm|jest|vitest|mocha|ava|tap|tape|jasmine|karma|borp|eslint|prettier|tsc|tsd|xo|standard|tsx"
    r"|ts-node|uvu|qunit|cypress|playwright|wtr|react-scripts|lerna|turbo|nx|webpack|rollup|tsup|vue-tsc|wdio|c8|nyc|ng)\b"
)
_PYTHON = re.compile(
    r"\b(?:python[\d.]*|py\.test|pytest|tox|nox|hatch|poetry|pdm|uv|pipenv|nosetests|nose2|trial|stestr|behave|robot|django-admin|mypy"
    r"|flake8|ruff|black|isort|pylint|pyright|bandit|maturin|cython\w*)\b|\w\.py\b"
)


def runtime_of(text: str) -> str:
    """Return what runs a command, by the first program of it that is known: ``python``, ``node`` or ""."""
    node, python = _NODE.search(text), _PYTHON.search(text)
    if node and (not python or node.start() < python.start()):
        return "node"
    return "python" if python else ""


def mentions_runner(text: str) -> bool:
    """Does a text that isn't plain contain a test runner as a word?"""
    return any(program(word) in _TESTS for word in re.findall(r"[\w./@-]+", text)) or bool(
        re.search(
            r"\b(?:node --test|manage\.py test|(?:npm|yarn|pnpm|make) (?:run )?test\b|tox|nox)\b",
            text,
        )
    )
