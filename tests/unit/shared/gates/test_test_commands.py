"""A project's own test commands, in the forms in which public projects state them."""

import json
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fallback_plugins.shared.gates import ci_jobs, shell_commands, task_files, test_commands
from fallback_plugins.shared.gates.test_commands import (
    CommandKind,
    TestCommand,
    is_of_script,
    lines_of_ci,
    own_commands,
    suites_of,
)
from fallback_tier.errors import RepositoryError
from fallback_tier.repo import RepoContext
from tests.fakes.repository import context

WORKFLOW = ".github/workflows/ci.yml"
TESTS, TYPES, LINT, BUILD = (
    CommandKind.TESTS,
    CommandKind.TYPES,
    CommandKind.LINT,
    CommandKind.BUILD,
)


def found(root: Path, files: Mapping[str, str], folder: str = ".") -> tuple[TestCommand, ...]:
    return own_commands(context(root, {path: dedent(text) for path, text in files.items()}), folder)


def lines_of(root: Path, files: Mapping[str, str], folder: str = ".") -> list[str]:
    return [one.line for one in found(root, files, folder) if one.kind is TESTS]


def first(root: Path, files: Mapping[str, str], folder: str = ".") -> TestCommand:
    return next(one for one in found(root, files, folder) if one.kind is TESTS)


def manifest(**scripts: str) -> str:
    return json.dumps({"name": "root", "scripts": scripts})


def workflow(run: str, **job: object) -> str:
    """A workflow of one job with one step. JSON is YAML."""
    steps = [{"uses": "actions/checkout@v4"}, {"name": "Run", "run": run}]
    return json.dumps(
        {
            "on": ["push", "pull_request"],
            "jobs": {"test": {"runs-on": "ubuntu-latest", "steps": steps, **job}},
        }
    )


# -- what comes first ----------------------------------------------------------------------------------


def test_nothing_is_stated(tmp_path: Path) -> None:
    assert found(tmp_path, {"a.py": "", "README.md": "Run `pytest`."}) == ()


def test_the_user_comes_before_ci_and_ci_before_scripts(tmp_path: Path) -> None:
    files = {WORKFLOW: workflow("npx jest --ci"), "package.json": manifest(test="jest")}
    commands = own_commands(context(tmp_path, files), ".", ["./mine.sh"])
    assert [(one.line, one.source) for one in commands] == [
        ("./mine.sh", "--test-command"),
        ("npx jest --ci", f'{WORKFLOW}, job test, step "Run"'),
        ("jest", "package.json, script test"),
    ]


def test_runners_come_in_the_order_of_the_decision(tmp_path: Path) -> None:
    files = {
        "tox.ini": "[testenv]\ncommands = pytest tox\n",
        "noxfile.py": "import nox\n@nox.session\ndef tests(session):\n    session.run('pytest', 'nox')\n",
        "pyproject.toml": """
            [tool.hatch.envs.default.scripts]
            test = "pytest hatch"
            [tool.poe.tasks]
            test = "pytest poe"
            [tool.pdm.scripts]
            test = "pytest pdm"
            """,
        "Makefile": "test:\n\tpytest make\n",
        "justfile": "test:\n    pytest just\n",
        "package.json": manifest(test="jest"),
        "manage.py": "",
    }
    lines = lines_of(tmp_path, files)
    assert lines == [
        *("pytest tox", "pytest nox", "pytest hatch", "pytest poe", "pytest pdm", "make test"),
        *("pytest just", "jest", "python manage.py test"),
    ]


# -- GitHub --------------------------------------------------------------------------------------------


def test_of_a_matrix_linux_and_the_newest_release_are_taken(tmp_path: Path) -> None:
    text = """
        on: [push]
        jobs:
          test:
            strategy:
              matrix:
                os: [windows-latest, ubuntu-latest]
                python-version: ["3.9", "3.14t", "3.13", "pypy3.11", "3.10"]
                exclude:
                  - {os: ubuntu-latest, python-version: "3.13"}
            runs-on: ${{ matrix.os }}
            steps:
              - run: pytest --os=${{ matrix.os }} --py=${{ matrix.python-version }}
        """
    assert lines_of(tmp_path, {WORKFLOW: text}) == ["pytest --os=ubuntu-latest --py=3.10"]


def test_a_matrix_of_rows_alone(tmp_path: Path) -> None:
    text = """
        on: {pull_request: null}
        jobs:
          tests:
            runs-on: ${{ matrix.os || 'ubuntu-latest' }}
            strategy:
              matrix:
                include:
                  - {name: Windows, python: '3.14', os: windows-latest}
                  - {python: '3.13'}
                  - {python: '3.14'}
                  - {name: PyPy, python: 'pypy-3.11', tox: pypy311}
            steps:
              - run: uv run --locked tox run -e ${{ matrix.tox || format('py{0}', matrix.python) }}
        """
    tox = """
        [tool.tox.env_run_base]
        commands = [["pytest", "-v", {replace = "posargs", default = ["tests"], extend = true}]]
        """
    command = first(tmp_path, {".github/workflows/tests.yaml": text, "pyproject.toml": tox})
    assert command.line == "pytest -v tests"
    assert command.source.endswith("→ pyproject.toml [testenv]")


def test_environment_of_all_levels_without_secrets_and_expressions(tmp_path: Path) -> None:
    text = """
        on: push
        env: {A: workflow, B: workflow, FORCE_COLOR: 1}
        jobs:
          test:
            runs-on: ubuntu-latest
            env: {B: job, C: job, TOKEN: "${{ secrets.TOKEN }}", SHA: "${{ github.sha }}"}
            strategy: {matrix: {db: [sqlite]}}
            steps:
              - run: echo "D=exported" >> $GITHUB_ENV
              - run: E=inline pytest
                env: {C: step, F: "${{ matrix.db }}"}
        """
    assert first(tmp_path, {WORKFLOW: text}).env == {
        "CI": "true",
        "A": "workflow",
        "B": "job",
        "C": "step",
        "D": "exported",
        "E": "inline",
        "F": "sqlite",
    }


def test_conditions_decide_as_on_a_push_on_linux(tmp_path: Path) -> None:
    text = """
        on: [push, schedule]
        jobs:
          test:
            runs-on: ubuntu-latest
            strategy: {matrix: {node: [18, 22]}}
            steps:
              - {run: jest windows, if: "runner.os == 'Windows'"}
              - {run: jest old, if: "${{ matrix.node < 20 }}"}
              - {run: jest failed, if: failure()}
              - {run: jest scheduled, if: github.event_name == 'schedule'}
              - {run: jest here, if: "runner.os == 'Linux' && !cancelled()"}
              - {run: jest who-knows, if: steps.changes.outputs.code == 'true'}
          never:
            if: false
            steps: [{run: jest never}]
        """
    assert lines_of(tmp_path, {WORKFLOW: text}) == ["jest here", "jest who-knows"]


def test_services_by_their_usual_names(tmp_path: Path) -> None:
    services = {
        "db": {"image": "postgis/postgis:15-3.3"},
        "cache": {"image": "registry.example/redis:7"},
        "queue": {"image": "rabbitmq:management"},
        "search": {"image": "registry.example/elasticsearch/elasticsearch:8.11.2"},
        "sql": {"image": "registry.example/mssql/server:2019-latest"},
        "own": {"image": "registry.example/team/thing:1"},
    }
    command = first(
        tmp_path,
        {WORKFLOW: workflow("sudo systemctl start mysql.service\npytest", services=services)},
    )
    assert command.services == (
        "postgres",
        "redis",
        "rabbitmq",
        "elasticsearch",
        "mssql",
        "thing",
        "mysql",
    )


def test_what_is_built_before_comes_with_the_tests_and_installs_do_not(tmp_path: Path) -> None:
    run = """
        python -m pip install -U pip
        pip install -r requirements.txt
        npm ci
        cp .env.example .env
        python setup.py build_ext --inplace
        python manage.py migrate
        pytest --cov
        coverage xml
        codecov -t x
        """
    files = {WORKFLOW: workflow(dedent(run)), "manage.py": ""}
    commands = [one for one in found(tmp_path, files) if one.source.startswith(WORKFLOW)]
    assert [(one.line, one.kind) for one in commands] == [
        ("python setup.py build_ext --inplace", BUILD),
        ("pytest --cov", TESTS),
    ]
    assert commands[1].before == (
        *(
            "cp .env.example .env",
            "python setup.py build_ext --inplace",
            "python manage.py migrate",
        ),
    )


def test_what_another_folder_builds_is_run_there(tmp_path: Path) -> None:
    text = """
        on: push
        jobs:
          test:
            runs-on: ubuntu-latest
            steps:
              - run: npm run build
                working-directory: client
                env: {MODE: it's}
              - run: pytest
        """
    files = {WORKFLOW: text, "client/package.json": manifest(build="vite build")}
    assert first(tmp_path, files).before == ("(cd client && MODE='it'\"'\"'s' vite build)",)


def test_jobs_are_ordered_by_what_they_are_for(tmp_path: Path) -> None:
    jobs = {
        "deploy": {"steps": [{"run": "pytest deploy"}]},
        "integration": {"steps": [{"run": "pytest integration"}]},
        "windows": {"runs-on": "windows-latest", "steps": [{"run": "pytest windows"}]},
        "postgres-test": {
            "services": {"db": {"image": "postgres"}},
            "steps": [{"run": "pytest pg"}],
        },
        "sqlite-test": {"steps": [{"run": "pytest sqlite"}]},
        "unit": {"steps": [{"run": "pytest unit"}]},
        "lint": {"steps": [{"run": "flake8"}]},
    }
    files = {
        WORKFLOW: json.dumps({"on": "pull_request", "jobs": jobs}),
        ".github/workflows/a.yml": json.dumps(
            {"on": {"schedule": []}, "jobs": {"unit": {"steps": [{"run": "pytest nightly"}]}}}
        ),
        ".github/workflows/b.yml": json.dumps(
            {"on": "release", "jobs": {"test": {"steps": [{"run": "pytest release"}]}}}
        ),
    }
    lines = [line.split()[1] for line in lines_of(tmp_path, files)]
    assert lines == ["unit", "sqlite", "pg", "integration", "deploy", "windows"]


def test_a_scheduled_workflow_counts_if_there_is_nothing_else(tmp_path: Path) -> None:
    text = json.dumps(
        {"on": {"schedule": []}, "jobs": {"unit": {"steps": [{"run": "pytest nightly"}]}}}
    )
    assert lines_of(tmp_path, {WORKFLOW: text}) == ["pytest nightly"]


def test_a_called_workflow_and_an_own_action_get_their_inputs(tmp_path: Path) -> None:
    files = {
        WORKFLOW: """
            on: push
            jobs:
              call:
                uses: ./.github/workflows/_test.yml
                with: {folder: api}
            """,
        ".github/workflows/_test.yml": """
            on:
              workflow_call:
                inputs:
                  folder: {type: string}
                  marks: {type: string, default: "not slow"}
            jobs:
              test:
                runs-on: ubuntu-latest
                steps:
                  - uses: ./.github/actions/run
                    with: {marks: "${{ inputs.marks }}", folder: "${{ inputs.folder }}"}
            """,
        ".github/actions/run/action.yml": """
            inputs: {marks: {}, folder: {default: x}}
            runs:
              using: composite
              steps:
                - run: pytest -m "${{ inputs.marks }}"
                  working-directory: ${{ inputs.folder }}
                  shell: bash
            """,
        "api/a.py": "",
    }
    command = first(tmp_path, files)
    assert (command.line, command.folder) == ('pytest -m "not slow"', "api")
    assert command.source.startswith(
        f"{WORKFLOW}, job call → .github/workflows/_test.yml, job test"
    )


def test_a_matrix_of_folders_tests_each_member(tmp_path: Path) -> None:
    text = """
        on: push
        jobs:
          test:
            runs-on: ubuntu-latest
            strategy: {matrix: {lib: [libs/a, libs/b], python: ["3.12"]}}
            defaults: {run: {working-directory: "${{ matrix.lib }}"}}
            steps:
              - run: uv run pytest tests
        """
    files = {WORKFLOW: text, "libs/a/pyproject.toml": "", "libs/b/pyproject.toml": ""}
    for folder in ("libs/a", "libs/b"):
        assert first(tmp_path, files, folder).folder == folder


def test_a_matrix_of_suites_is_one_suite(tmp_path: Path) -> None:
    matrix = {"python": ["3.13", "3.12"], "suite": ["unit", "integration", "e2e"]}
    text = workflow("pytest tests/${{ matrix.suite }}", strategy={"matrix": matrix})
    (suite,) = suites_of(found(tmp_path, {WORKFLOW: text}), ".", "python")
    assert [one.line for one in suite] == [
        *("pytest tests/unit", "pytest tests/integration", "pytest tests/e2e"),
    ]
    assert [one.source.partition(",")[2] for one in suite] == [
        ' job test, step "Run"',
        ' job test (integration), step "Run"',
        ' job test (e2e), step "Run"',
    ]


def test_rows_of_commands_are_one_suite_and_a_called_workflow_too(tmp_path: Path) -> None:
    rows = [{"name": "core", "run": "pytest a -n4"}, {"name": "more", "run": "pytest b -n4"}]
    called = {"on": "workflow_call", "jobs": json.loads(workflow("${{ inputs.run }}"))["jobs"]}
    called["on"] = {"workflow_call": {"inputs": {"run": {}}}}
    text = workflow("")
    calling = json.loads(text)
    calling["jobs"]["test"] = {
        "uses": "./.github/workflows/_test.yml",
        "with": {"run": "${{ matrix.run }}"},
        "strategy": {"matrix": {"include": rows}},
    }
    files = {WORKFLOW: json.dumps(calling), ".github/workflows/_test.yml": json.dumps(called)}
    (suite,) = suites_of(found(tmp_path, files), ".", "python")
    assert [one.line for one in suite] == ["pytest a -n4", "pytest b -n4"]


@pytest.mark.parametrize(
    "matrix",
    [
        {"suite": ["py313", "py312"]},
        {"runner": ["large", "small"]},
        {"db": ["plain", "other"]},
        {"suite": ["postgres", "mysql"]},
        {"suite": ["firefox", "chrome"]},
        {"suite": ["unit", "flaky"]},
        {"suite": ["React 18", "React 19"]},
        {"suite": ["unit", "windows-unit", "lint", "nightly"]},
        {"suite": [True, False]},
        {"suite": ["", "no"]},
        {"suite": ["unit", "a" * 1_000]},
        {"suite": ["unit", ["integration"], {"name": "other"}, None]},
        {"include": [{"suite": "unit", "python": "3.13"}, {"suite": "other", "python": "3.9"}]},
    ],
)
def test_other_settings_are_no_other_suites(tmp_path: Path, matrix: dict[str, object]) -> None:
    run = " ".join(f"--{name}=${{{{ matrix.{name} }}}}" for name in ("suite", "runner", "db"))
    text = workflow(f"pytest {run}", strategy={"matrix": matrix})
    assert len(lines_of(tmp_path, {WORKFLOW: text})) == 1


def test_rows_beside_a_name_are_parts_too(tmp_path: Path) -> None:
    matrix = {"suite": ["unit"], "include": [{"suite": "admin"}, {"suite": "formatting"}]}
    text = workflow("pytest ${{ matrix.suite }}", strategy={"matrix": matrix})
    lines = lines_of(tmp_path, {WORKFLOW: text})
    assert lines == ["pytest unit", "pytest admin", "pytest formatting"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            ".travis.yml",
            """
            language: python
            jobs:
              include:
                - {stage: test, script: pytest, env: SUITE=unit}
                - {stage: test, script: pytest, env: SUITE=integration}
            """,
        ),
        (
            "azure-pipelines.yml",
            """
            stages:
              - stage: a
                jobs: [{job: Test, steps: [{script: pytest, env: {SUITE: unit}}]}]
              - stage: b
                jobs: [{job: Test, steps: [{script: pytest, env: {SUITE: integration}}]}]
            """,
        ),
    ],
)
def test_jobs_of_one_name_are_other_jobs(tmp_path: Path, path: str, text: str) -> None:
    """Only a further part of one job leaves out what that runs already."""
    commands = [one for one in found(tmp_path, {path: text}) if one.kind is TESTS]
    assert [one.env["SUITE"] for one in commands] == ["unit", "integration"]


def test_many_parts_leave_other_ways_to_test(tmp_path: Path) -> None:
    matrix = {"suite": [f"suite-{'x' * number}" for number in range(1, 20)]}
    run = "\n".join(f"pytest {{{{0}}}} part{number}" for number in range(9))
    run = run.replace("{{0}}", "${{ matrix.suite }}")
    files = {
        WORKFLOW: workflow(run, strategy={"matrix": matrix}),
        "Makefile": "test:\n\tpytest make\n",
    }
    commands = found(tmp_path, files)
    assert commands[-1].line == "make test"
    assert len(commands) == test_commands.MAX_COMMANDS + 1


def test_a_huge_matrix_takes_no_longer(tmp_path: Path) -> None:
    values = [f"{'a1' * 140}{number}" for number in range(1_600)]
    called = {"on": {"workflow_call": {}}, "jobs": json.loads(workflow("pytest"))["jobs"]}
    called["jobs"]["test"]["strategy"] = {"matrix": {"suite": values}}
    words = [f"suite-{'x' * number}" for number in range(1, 15)]
    calling = json.loads(workflow(""))
    uses = "./.github/workflows/_test.yml"
    calling["jobs"] = {
        f"job{number}": {"uses": uses, "strategy": {"matrix": {"suite": words}}}
        for number in range(20)
    }
    files = {WORKFLOW: json.dumps(calling), ".github/workflows/_test.yml": json.dumps(called)}
    assert lines_of(tmp_path, files)


def test_what_a_matrix_sets_beside_the_command_is_no_other_suite(tmp_path: Path) -> None:
    matrix = {"suite": ["thin", "thick"]}
    env = {"KIND": "${{ matrix.suite }}"}
    files = {WORKFLOW: workflow("pytest", env=env, strategy={"matrix": matrix})}
    assert lines_of(tmp_path, files) == ["pytest"]


def test_parts_of_a_matrix_have_a_limit(tmp_path: Path) -> None:
    matrix = {"suite": [f"suite-{'x' * number}" for number in range(1, 60)]}
    text = workflow("pytest ${{ matrix.suite }}", strategy={"matrix": matrix})
    assert len(lines_of(tmp_path, {WORKFLOW: text})) == 1 + ci_jobs.MAX_PARTS


def test_only_commands_of_ci_are_known_as_such(tmp_path: Path) -> None:
    files = {WORKFLOW: workflow("pytest a"), "Makefile": "test:\n\tpytest b\n"}
    assert lines_of_ci(found(tmp_path, files)) == ("pytest a",)


def test_steps_of_actions_that_run_a_command(tmp_path: Path) -> None:
    retried = {"uses": "example/retry@v3", "with": {"command": "pytest a", "max_attempts": 3}}
    display = {"uses": "example/xvfb@v1", "with": {"run": "pytest b"}}
    job = {"steps": [retried, display]}
    text = json.dumps({"on": "push", "jobs": {"test": job}})
    assert lines_of(tmp_path, {WORKFLOW: text}) == ["pytest a", "pytest b"]


def test_a_line_that_needs_a_run_of_ci_is_left_out(tmp_path: Path) -> None:
    run = "pytest --sha=${{ github.sha }}\npytest tests"
    assert lines_of(tmp_path, {WORKFLOW: workflow(run)}) == ["pytest tests"]


# -- other CI ------------------------------------------------------------------------------------------


def test_gitlab(tmp_path: Path) -> None:
    text = """
        default: {image: "python:3.12"}
        variables: {TOP: "1"}
        .base: &base
          before_script:
            - pip install .
            - cd api
            - npm run generate
          services: ["postgres:15", {name: "redis:7", alias: cache}]
        .more:
          script:
            - pytest more
        unit tests:
          <<: *base
          stage: test
          variables: {DATABASE_URL: "postgres://db", KEPT: "$SECRET"}
          script:
            - pytest -q
            - !reference [.more, script]
        nightly:
          rules: [{if: '$CI_PIPELINE_SOURCE == "schedule"'}]
          script: [pytest nightly]
        child:
          extends: .base
          script: pytest child
        """
    files = {".gitlab-ci.yml": text, "api/package.json": manifest(generate="node gen.js")}
    commands = [one for one in found(tmp_path, files, "api") if one.kind is TESTS]
    assert [one.line for one in commands] == ["pytest -q", "pytest more", "pytest child"]
    assert commands[0].services == ("postgres", "redis")
    assert commands[0].env == {"CI": "true", "TOP": "1", "DATABASE_URL": "postgres://db"}
    assert commands[0].source == ".gitlab-ci.yml, job unit tests"
    assert commands[0].before == ("node gen.js",)


def test_circleci(tmp_path: Path) -> None:
    text = """
        version: 2.1
        executors:
          node: {docker: [{image: cimg/node:20.1}, {image: "mongo:6"}]}
        commands:
          run-tests:
            parameters: {reporter: {type: string, default: spec}}
            steps:
              - run: npm ci
              - run:
                  name: Test
                  command: npx mocha --reporter << parameters.reporter >>
                  environment: {A: b}
        jobs:
          unit:
            executor: node
            steps:
              - checkout
              - run: {command: npm start, background: true}
              - run-tests: {reporter: dot}
          nightly:
            docker: [{image: node}]
            steps: [{run: npx mocha nightly}]
          unused:
            docker: [{image: node}]
            steps: [{run: npx mocha unused}]
        workflows:
          test: {jobs: [unit]}
          nightly: {triggers: [{schedule: {cron: "0 0 * * *"}}], jobs: [nightly]}
        """
    commands = found(tmp_path, {".circleci/config.yml": text})
    assert [one.line for one in commands] == ["npx mocha --reporter dot"]
    assert commands[0].services == ("mongo",)
    assert commands[0].env == {"CI": "true", "A": "b"}
    assert commands[0].source == '.circleci/config.yml, job unit, step "Test"'


def test_azure(tmp_path: Path) -> None:
    text = """
        trigger: [main]
        variables: [{group: secrets}, {name: suite, value: unit}]
        jobs:
          - job: Windows
            pool: {vmImage: windows-latest}
            steps: [{script: pytest windows}]
          - job: Linux
            pool: {vmImage: ubuntu-latest}
            strategy:
              matrix:
                Python39: {python.version: '3.9'}
                Python312: {python.version: '3.12'}
            steps:
              - task: UsePythonVersion@0
              - script: pip install tox
              - bash: pytest tests/$(suite) --py=$(python.version)
                displayName: Test
                workingDirectory: $(Build.SourcesDirectory)
        """
    command = first(tmp_path, {"azure-pipelines.yml": text})
    assert command.line == "pytest tests/unit --py=3.12"
    assert command.env == {"CI": "true", "suite": "unit"}
    assert command.source == 'azure-pipelines.yml, job Linux, step "Test"'


def test_travis(tmp_path: Path) -> None:
    text = """
        language: python
        python: ["3.6", "2.7"]
        services: [redis-server, docker]
        env:
          global: [A=1, {secure: abc}]
          matrix: [DB=sqlite, DB=pg]
        install: pip install .
        before_script: python setup.py build_ext --inplace
        script:
          - flake8
          - python -m unittest discover
        after_success: coveralls
        """
    commands = found(tmp_path, {".travis.yml": text})
    tests = next(one for one in commands if one.kind is TESTS)
    assert (tests.line, tests.services) == ("python -m unittest discover", ("redis",))
    assert tests.env == {"CI": "true", "A": "1", "DB": "sqlite"}
    assert tests.before == ("python setup.py build_ext --inplace",)


def test_travis_tests_node_by_default_and_comes_after_github(tmp_path: Path) -> None:
    files = {
        ".travis.yml": "language: node_js\nnode_js: [8]\n",
        "package.json": manifest(test="mocha travis"),
    }
    assert first(tmp_path, files).source == ".travis.yml, job test → package.json, script test"
    files |= {WORKFLOW: workflow("npx ava")}
    assert lines_of(tmp_path, files) == ["npx ava", "mocha travis"]


# -- Python's runners ----------------------------------------------------------------------------------

TOX = """
    [tox]
    envlist = lint, py{39,312}-{django42,postgres}, docs
    [base]
    options = --tb=short
    [testenv]
    changedir = src
    setenv =
        PYTHONWARNINGS = error
        postgres: DB=postgres
        {py39,py312}: BOTH=1
        TMP = {envtmpdir}
    commands_pre = pip install x
    commands =
        django42,py39: {envpython} -m pytest {[base]options} \\
            --rootdir={toxinidir} {posargs:tests}
        postgres: pytest pg
        - coverage report
    [testenv:lint]
    commands =
        flake8 {toxinidir}
        mypy src
    """


@pytest.mark.parametrize(
    ("run", "lines"),
    [
        ("tox", ["python -m pytest --tb=short --rootdir=.. tests"]),
        ("python -m tox run -e py312-postgres", ["pytest pg"]),
        (
            "uvx --with tox-uv tox -e py312-django42 -- -k one",
            ["python -m pytest --tb=short --rootdir=.. -k one"],
        ),
        ("tox -f postgres", ["pytest pg"]),
        ("tox -qe py312-postgres", ["pytest pg"]),
        (
            "TOXENV=py39-postgres tox",
            ["python -m pytest --tb=short --rootdir=.. tests", "pytest pg"],
        ),
        ("export TOX_ENV=py312-postgres; tox run", ["pytest pg"]),
        ("tox -e lint", []),
    ],
)
def test_tox_comes_down_to_its_commands(tmp_path: Path, run: str, lines: list[str]) -> None:
    files = {WORKFLOW: workflow(run), "tox.ini": TOX}
    commands = [one for one in found(tmp_path, files) if one.source.startswith(WORKFLOW)]
    assert [one.line for one in commands if one.kind is TESTS] == lines
    assert {one.folder for one in commands if one.kind is TESTS} <= {"src"}


def test_tox_environment(tmp_path: Path) -> None:
    commands = found(tmp_path, {"tox.ini": TOX})
    tests = next(one for one in commands if one.kind is TESTS)
    assert tests.env == {"PYTHONWARNINGS": "error", "BOTH": "1"}
    assert tests.source == "tox.ini [testenv:py312-django42]"
    assert [(one.line, one.kind) for one in commands if one.kind is not TESTS] == [
        ("flake8 ..", LINT),
        ("mypy src", TYPES),
    ]


def test_tox_in_setup_cfg_and_in_pyproject(tmp_path: Path) -> None:
    ini = "[tox:tox]\nenvlist = py3\n[testenv]\ncommands = nosetests\n"
    assert lines_of(tmp_path / "a", {"setup.cfg": ini}) == ["nosetests"]
    legacy = '[tool.tox]\nlegacy_tox_ini = """\n[testenv]\ncommands = trial pkg\n"""\n'
    assert lines_of(tmp_path / "b", {"pyproject.toml": legacy}) == ["trial pkg"]


NOX = """
    import nox
    PYTHONS = ["3.9", "3.12"]
    FILES = ["src", "tests"]
    nox.options.sessions = ["lint"]

    def _pytest(session, *, marks="not slow", extra=()):
        session.install("pytest")
        session.run("python", "-c", "import sys")
        session.run(
            "coverage", "run", "-m", "pytest", "-m", marks, *extra,
            *(session.posargs or ("tests",)), env={"A": "b"},
        )

    @nox.session(python=PYTHONS)
    def tests(session: nox.Session) -> None:
        session.env["C"] = "d"
        if session.python == "3.9":
            session.install("old")
        _pytest(session, extra=["-x"])

    @nox.session(name="slow-tests", venv_backend="uv")
    def slow(session):
        with session.chdir("sub"):
            session.run("pytest", f"--count={1}", *FILES)

    @nox.session
    def lint(session):
        session.run("ruff", "check", *FILES)
    """


@pytest.mark.parametrize(
    ("run", "line"),
    [
        ("nox -s tests", "python -m pytest -m 'not slow' -x tests"),
        ("nox --session tests-3.12", "python -m pytest -m 'not slow' -x tests"),
        ("nox --session=tests -- -k one", "python -m pytest -m 'not slow' -x -k one"),
        ("pipx run nox -e tests", "python -m pytest -m 'not slow' -x tests"),
    ],
)
def test_nox_comes_down_to_its_runs(tmp_path: Path, run: str, line: str) -> None:
    command = first(tmp_path, {WORKFLOW: workflow(run), "noxfile.py": NOX})
    assert command.line == line
    assert command.env == {"CI": "true", "A": "b", "C": "d"}
    assert command.source == f'{WORKFLOW}, job test, step "Run" → noxfile.py, session tests'


def test_nox_tests_though_its_default_lints(tmp_path: Path) -> None:
    files = {WORKFLOW: workflow("nox"), "noxfile.py": NOX}
    assert [(one.line, one.kind) for one in found(tmp_path, files)] == [
        ("ruff check src tests", LINT),
        ("python -m pytest -m 'not slow' -x tests", TESTS),
    ]


HATCH = """
    [tool.hatch.envs.default]
    env-vars = {A = "1"}
    [tool.hatch.envs.default.scripts]
    test = "pytest {args:tests}"
    all = ["lint", "test", "- coverage xml"]
    lint = "ruff check"
    [tool.hatch.envs.cov.scripts]
    run = "pytest --cov {args}"
    """


@pytest.mark.parametrize(
    ("run", "line"),
    [
        ("hatch run test", "pytest tests"),
        ("hatch run test -k one", "pytest -k one"),
        ("hatch run +py=3.12 cov:run", "pytest --cov"),
        ("hatch -e cov run run", "pytest --cov"),
        ("hatch env run -e cov -- run -x", "pytest --cov -x"),
        ("hatch run all", "pytest tests"),
        ("hatch run python -m unittest", "python -m unittest"),
        ("hatch test -a --cover", "pytest tests"),
        ("pipx run hatch test tests/unit", "pytest tests/unit"),
    ],
)
def test_hatch_comes_down_to_its_scripts(tmp_path: Path, run: str, line: str) -> None:
    command = first(tmp_path, {WORKFLOW: workflow(run), "pyproject.toml": HATCH})
    assert command.line == line
    assert command.env["A"] == "1"


TASKS = """
    [tool.poe.tasks]
    _unit = "pytest -q"
    unit = {ref = "_unit"}
    test = ["lint", "unit"]
    lint = {cmd = "ruff check ."}
    shell = {shell = "cd sub && pytest", env = {A = "1"}}
    script = {script = "pkg:run"}
    [tool.pdm.scripts]
    lint = "flake8"
    test = {composite = ["lint", "pytest pdm"], env = {B = "2"}}
    """


@pytest.mark.parametrize(
    ("run", "line"),
    [
        ("poe test", "pytest -q"),
        ("poetry run poe unit", "pytest -q"),
        ("uv run poe test", "pytest -q"),
        ("poetry poe unit", "pytest -q"),
        ("poe shell", "pytest"),
        ("pdm run test", "pytest pdm"),
        ("pdm run -v test", "pytest pdm"),
        ("pdm run pytest x", "pytest x"),
        ("pipenv run cover", "nosetests --cover"),
        ("pipenv run pytest y", "pytest y"),
        ("uv run --group dev -p 3.12 -- pytest -n auto", "pytest -n auto"),
        ("uv run --with x -m pytest", "pytest"),
        ("uv -q --python 3.12 run pytest a", "pytest a"),
        ("uv --directory sub run pytest b", "pytest b"),
        ("coverage run $options -m pytest c", "python -m pytest c"),
        ("MARK=`date +%s` pytest d", "MARK=`date +%s` pytest d"),
        ("PREFIX= && ${PREFIX}pytest e", "pytest e"),
        ("npx concurrently 'yarn:build:*(!docs)' 'pytest f'", "pytest f"),
        ("uv run tests.py", "python tests.py"),
        ("poetry run coverage run --source pkg -m pytest t", "python -m pytest t"),
        ("python -W error -m coverage run --branch -m unittest", "python -W error -m unittest"),
        ("coverage run runtests.py --parallel", "python runtests.py --parallel"),
        ("timeout 60 xvfb-run -a pytest gui", "pytest gui"),
        ('bash -c "pytest inner"', "pytest inner"),
        ("conda run -n env pytest", "pytest"),
    ],
)
def test_wrappers_and_tasks_are_taken_off(tmp_path: Path, run: str, line: str) -> None:
    files = {
        WORKFLOW: workflow(run),
        "pyproject.toml": TASKS,
        "tests.py": "",
        "runtests.py": "",
        "Pipfile": '[scripts]\ncover = "nosetests --cover"\n',
    }
    assert first(tmp_path, files).line == line


# -- make, just --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipes", "run", "lines"),
    [
        ("test:\n\t@pytest -q\n", "make test", ["make test"]),
        (
            "PY = python3\ntest: build\n\t$(PY) -m pytest\nbuild:\n\tcythonize x\n",
            "make -j 2 test",
            ["make -j 2 test"],
        ),
        ("check:\n\ttox -e py\n", "make check", ["pytest toxed"]),
        ("test: dev\n\tpytest -q\ndev:\n\tpip install -e .\n", "make test", ["pytest -q"]),
        ("test:\n\tdocker compose run app pytest\n", "make test", []),
        ("test:\n\t$(MAKE) -C sub check\n", "make test", ["make test"]),
        ("lint:\n\tflake8\ntest:\n\tpytest\n", "make lint test", ["make test"]),
        ("test:\n\t./weird --thing\n", "make test", ["make test"]),
        (
            "M = a.b\nM += test.unit\n$(M):\n\t./manage $@\ntest: test.unit\n",
            "make test",
            ["make test"],
        ),
        ("test: lint\n\t./manage unit\nlint:\n\tflake8\n", "make test", ["make test"]),
    ],
)
def test_make_stays_unless_it_installs_or_delegates(
    tmp_path: Path, recipes: str, run: str, lines: list[str]
) -> None:
    files = {
        WORKFLOW: workflow(run),
        "Makefile": recipes,
        "tox.ini": "[testenv]\ncommands = pytest toxed\n",
    }
    files["sub/Makefile"] = "check:\n\tpytest\n"
    commands = [one for one in found(tmp_path, files) if one.source.startswith(WORKFLOW)]
    assert [one.line for one in commands if one.kind is TESTS] == lines


def test_just(tmp_path: Path) -> None:
    justfile = """
        py := "3"
        default: test
        test *args: build
            @pytest {{ args }}
        build:
            cythonize x
        """
    commands = found(tmp_path, {WORKFLOW: workflow("just test -k one"), "justfile": justfile})
    assert [(one.line, one.kind) for one in commands][:2] == [
        ("cythonize x", BUILD),
        ("pytest -k one", TESTS),
    ]


# -- npm's scripts -------------------------------------------------------------------------------------


def test_one_script_is_told_apart_by_what_it_runs(tmp_path: Path) -> None:
    commands = found(tmp_path, {"package.json": manifest(test="xo && ava && tsd")})
    assert [(one.line, one.kind) for one in commands] == [
        ("xo", LINT),
        ("ava", TESTS),
        ("tsd", TYPES),
    ]
    assert {one.source for one in commands} == {"package.json, script test"}
    assert len({one.group for one in commands}) == 1


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (
            "npm test",
            [
                ("eslint .", LINT),
                ("node make.js", BUILD),
                ("mocha", TESTS),
                ("tsc --noEmit", TYPES),
            ],
        ),
        (
            "npm t -- --bail 'a b'",
            [
                ("eslint .", LINT),
                ("node make.js", BUILD),
                ("mocha 'a b'", TESTS),
                ("tsc --noEmit", TYPES),
            ],
        ),
        ("yarn unit --bail", [("mocha --bail", TESTS)]),
        ("pnpm run unit", [("mocha", TESTS)]),
        ("bun run unit", [("mocha", TESTS)]),
        ("npm run cover", [("mocha", TESTS)]),
        ("npx nyc -r lcov --reporter=text npm run unit", [("mocha", TESTS)]),
        ("yarn vitest run", [("vitest run", TESTS)]),
        ("pnpm exec vitest run", [("vitest run", TESTS)]),
        ("npx run-s types unit", [("tsc --noEmit", TYPES), ("mocha", TESTS)]),
        ("npm run all", [("mocha a", TESTS), ("mocha b", TESTS)]),
        ("npx concurrently 'npm:part:*'", [("mocha a", TESTS), ("mocha b", TESTS)]),
        ("npm run placeholder", []),
        ("npm run start", []),
        ("npm run cross", [("jest -i", TESTS)]),
        ("npm run piped", [("tape test/*.js | tap-spec", TESTS)]),
        ("npm run hooked", [("node hook.js mocha x", TESTS)]),
        ("npm run lenient", [("jest || true", TESTS)]),
        ("npm run unit || true", [("mocha", TESTS)]),
    ],
)
def test_scripts_and_what_they_chain(
    tmp_path: Path, run: str, expected: list[tuple[str, CommandKind]]
) -> None:
    scripts = {
        "pretest": "npm run lint && node make.js",
        "test": "npm run unit",
        "posttest": "npm run types",
        "lint": "eslint .",
        "unit": "mocha",
        "types": "tsc --noEmit",
        "cover": "c8 --check-coverage --lines 100 npm run unit",
        "part:a": "mocha a",
        "part:b": "mocha b",
        "all": "npm-run-all --parallel part:*",
        "placeholder": 'echo "Error: no test specified" && exit 1',
        "start": "node server.js",
        "cross": "cross-env NODE_ENV=test jest -i",
        "piped": "tape test/*.js | tap-spec",
        "hooked": "node hook.js mocha x",
        "lenient": "jest || true",
    }
    files = {
        WORKFLOW: workflow(run),
        "package.json": json.dumps({"scripts": scripts}),
        "hook.js": "",
    }
    commands = [one for one in found(tmp_path, files) if one.source.startswith(WORKFLOW)]
    assert [(one.line, one.kind) for one in commands] == expected


@pytest.mark.parametrize(
    "name", ["check.js", "type-check.js", "scripts/lint.js", "eslint.js", "tsc.js"]
)
def test_a_script_in_a_test_task_tests_whatever_it_is_called(tmp_path: Path, name: str) -> None:
    files = {"package.json": manifest(test=f"jest && node {name}"), name: ""}
    assert lines_of(tmp_path, files) == ["jest", f"node {name}"]
    files["package.json"] = manifest(test=f"node {name}")
    assert lines_of(tmp_path, files) == [f"node {name}"]


@pytest.mark.parametrize(
    ("task", "command", "kind"),
    [
        ("lint", "node scripts/lint.js", LINT),
        ("test", "node node_modules/.bin/tsc --noEmit", TYPES),
        ("test", "node node_modules/eslint/bin/eslint.js .", LINT),
        ("lint", "node node_modules/.bin/jest", TESTS),
    ],
)
def test_a_programs_own_kind_precedes_its_tasks_name(
    tmp_path: Path, task: str, command: str, kind: CommandKind
) -> None:
    files = {WORKFLOW: workflow(f"npm run {task}"), "package.json": manifest(**{task: command})}
    files["scripts/lint.js"] = ""
    assert [(one.line, one.kind) for one in found(tmp_path, files)][:1] == [(command, kind)]


def test_a_script_that_its_name_alone_makes_a_test(tmp_path: Path) -> None:
    assert lines_of(tmp_path / "a", {"package.json": manifest(test="node index-check")}) == [
        "node index-check"
    ]
    commands = found(
        tmp_path / "b", {"package.json": manifest(test="node scripts/make-data && jest")}
    )
    assert [(one.line, one.before) for one in commands] == [("jest", ("node scripts/make-data",))]


def test_other_suites_come_behind_the_test_script(tmp_path: Path) -> None:
    scripts = {
        "test:watch": "jest --watch",
        "test:cov": "jest --coverage",
        "test:e2e": "jest --config test/e2e.json",
        "test:types": "tsd",
        "test": "jest",
    }
    wanted = ["jest", "jest --config test/e2e.json"]
    assert lines_of(tmp_path / "a", {"package.json": manifest(**scripts)}) == wanted
    groups = {one.group for one in found(tmp_path / "b", {"package.json": manifest(**scripts)})}
    assert len(groups) == len(wanted)


@pytest.mark.parametrize(
    ("scripts", "lines"),
    [
        # A script of the repository is a test before the runner and behind it.
        ({"test": "node verify.js && jest"}, ["node verify.js", "jest"]),
        ({"test": "jest", "posttest": "node verify.js"}, ["jest", "node verify.js"]),
        ({"test": "mocha & jest & wait"}, ["mocha", "jest"]),
        ({"test": "node server.js & jest"}, ["jest"]),
        # All tests, not one machine's share of them.
        ({"test": "jest --shard=1/4 --ci"}, ["jest --ci"]),
        ({"test": "vitest run --shard 2/3"}, ["vitest run"]),
    ],
)
def test_no_part_of_a_test_script_is_dropped(
    tmp_path: Path, scripts: dict[str, str], lines: list[str]
) -> None:
    assert lines_of(tmp_path, {"package.json": manifest(**scripts), "verify.js": ""}) == lines


def test_shares_of_python_tests_are_taken_off(tmp_path: Path) -> None:
    run = "pytest --splits 4 --group 1 tests && python -m pytest --group=slow"
    lines = lines_of(tmp_path, {".github/workflows/ci.yml": workflow(run)})
    assert lines == ["pytest tests", "python -m pytest --group=slow"]


def test_a_check_of_the_test_script_stays_one_beside_the_same_in_ci(tmp_path: Path) -> None:
    files = {
        ".github/workflows/ci.yml": workflow("npm run lint\nnpm test"),
        "package.json": manifest(lint="eslint .", test="npm run lint && mocha"),
    }
    checks = [one for one in found(tmp_path, files) if one.kind is LINT]
    assert {one.line for one in checks} == {"eslint ."}
    assert [is_of_script(one, "test") for one in checks] == [False, True]


@pytest.mark.parametrize(
    "files",
    [
        {"Makefile": "".join(f"test: {'b ' * 900}\n" for _ in range(60)) + "b:\n\tpytest\n" * 60},
        {".github/workflows/ci.yml": workflow("echo " + "${{ " * 30_000)},
        {
            ".gitlab-ci.yml": "x: &x '"
            + "y" * 300_000
            + "'\ntest:\n  script: ["
            + "*x, " * 900
            + "]\n"
        },
    ],
    ids=["needs", "placeholders", "aliases"],
)
def test_what_multiplies_is_read_in_bounds(tmp_path: Path, files: dict[str, str]) -> None:
    """Without a bound each takes minutes, or all memory."""
    assert all(len(one.line) < shell_commands.MAX_SCRIPT_CHARS for one in found(tmp_path, files))


def test_the_compiler_builds_unless_it_writes_nothing(tmp_path: Path) -> None:
    scripts = manifest(test="tsc -p tsconfig.spec.json && tsc && mocha dist")
    files = {
        "package.json": scripts,
        "tsconfig.spec.json": '{"compilerOptions": {"noEmit": true}}',
        "tsconfig.json": "{}",
    }
    commands = found(tmp_path, files)
    assert [(one.line, one.kind) for one in commands] == [
        ("tsc -p tsconfig.spec.json", TYPES),
        ("tsc", BUILD),
        ("mocha dist", TESTS),
    ]
    assert commands[2].before == ("tsc",)


def test_runtimes(tmp_path: Path) -> None:
    run = "pytest\nnpx jest\nmake test\n./test.sh"
    files = {WORKFLOW: workflow(run), "Makefile": "test:\n\tpython -m unittest\n", "test.sh": ""}
    assert [one.runtime for one in found(tmp_path, files)][:4] == ["python", "node", "python", ""]


def test_a_shell_script_of_the_repository_is_read(tmp_path: Path) -> None:
    files = {
        WORKFLOW: workflow("scripts/test\n./docker_tests.sh"),
        "scripts/test": "#!/bin/sh -e\nexport PREFIX='venv/bin/'\nset -x\npytest tests $@\n",
        "docker_tests.sh": "#!/bin/bash\ndocker run app pytest\n",
    }
    command = first(tmp_path, files)
    assert (command.line, command.env["PREFIX"]) == ("pytest tests", "venv/bin/")
    assert len(lines_of(tmp_path, files)) == 1


# -- a shell's text ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "lines"),
    [
        ("set -e\npytest a && pytest b; pytest c", ["pytest a", "pytest b", "pytest c"]),
        ("pytest \\\n  -x \\\n  tests", ["pytest -x tests"]),
        ("pytest -k 'a && b'  # all of it", ["pytest -k 'a && b'"]),
        ("pytest | tee log.txt", ["pytest | tee log.txt"]),
        ("pytest 2>&1 > log", ["pytest 2>&1 > log"]),
        ("node server.js &\npytest", ["pytest"]),
        ("cd tests && pytest\ncd ..\npytest", ["pytest", "pytest"]),
        (
            "if [ -z $X ]; then\n  pytest slow\nfi\npytest",
            ["if [ -z $X ]; then pytest slow fi", "pytest"],
        ),
        ("for d in a b; do make $d; done", []),
        ("cat <<EOF > x\npytest\nEOF\npytest", ["cat <<EOF > x\npytest\nEOF\npytest"]),
        ("docker compose run web pytest", []),
        ("curl -s https://example.com/x | sh", []),
        ("npx playwright install --with-deps", []),
        ("pytest --collect-only", []),
        ("pytest --version", []),
        ("export PYTHONPATH=$PWD A=1\npytest", ['export PYTHONPATH="$PWD" && pytest']),
    ],
)
def test_scripts_are_cut_if_they_are_plain(tmp_path: Path, script: str, lines: list[str]) -> None:
    squeezed = [" ".join(line.split()) for line in lines_of(tmp_path, {WORKFLOW: workflow(script)})]
    assert squeezed == [" ".join(line.split()) for line in lines]


def test_a_script_that_is_not_tracked_is_no_test(tmp_path: Path) -> None:
    run = "echo 'print()' > test.py && python test.py\nnode test/run\nnode build/test.js"
    files = {WORKFLOW: workflow(run), "test/run.js": ""}
    assert lines_of(tmp_path, files) == ["node test/run", "node build/test.js"]


def test_a_lenient_step_and_a_job_for_something_else(tmp_path: Path) -> None:
    text = """
        on: push
        jobs:
          load-test: {steps: [{run: pytest load}]}
          test: {steps: [{run: pytest lenient, continue-on-error: true}]}
        """
    files = {WORKFLOW: text, "tox.ini": "[testenv]\ncommands = pytest tox\n"}
    assert lines_of(tmp_path, files) == ["pytest tox", "pytest load"]


def test_a_members_own_tests_precede_special_jobs_of_the_root(tmp_path: Path) -> None:
    files = {**MEMBERS, "package.json": "{}"}
    files[WORKFLOW] = """
        on: push
        jobs:
          load-test: {steps: [{run: npx jest load}]}
          test: {steps: [{run: yarn workspace @x/a test}]}
        """
    assert lines_of(tmp_path, files) == ["jest a", "npx jest load"]


def test_folders_of_a_script(tmp_path: Path) -> None:
    files = {
        WORKFLOW: workflow(
            "cd tests && pytest a\ncd -\npushd src; pytest b; popd; pytest c\ncd /tmp\npytest d"
        )
    }
    found_in = [(one.line, one.folder) for one in found(tmp_path, files)]
    assert found_in == [("pytest a", "tests"), ("pytest b", "src"), ("pytest c", ".")]


# -- monorepos -----------------------------------------------------------------------------------------

MEMBERS = {
    "package.json": json.dumps(
        {"name": "root", "workspaces": ["packages/*"], "scripts": {"test": "turbo run test"}}
    ),
    "packages/a/package.json": json.dumps({"name": "@x/a", "scripts": {"test": "jest a"}}),
    "packages/b/package.json": json.dumps({"name": "@x/b", "scripts": {"test": "jest b"}}),
    "packages/c/package.json": json.dumps({"name": "@x/c"}),
}


@pytest.mark.parametrize(
    "run",
    [
        *("npm test -w @x/a", "npm test --workspace=packages/a", "npm --prefix packages/a test"),
        *(
            "npm run test --prefix packages/a",
            "pnpm --filter @x/a test",
            "pnpm -F ./packages/a run test",
        ),
        *("pnpm --filter 'a...' test", "pnpm -C packages/a test", "yarn workspace @x/a test"),
        *("yarn --cwd packages/a test", "cd packages/a && npm test", "(cd packages/a && jest a)"),
    ],
)
def test_a_members_command_is_the_members(tmp_path: Path, run: str) -> None:
    files = {**MEMBERS, WORKFLOW: workflow(run)}
    command = first(tmp_path, files, "packages/a")
    assert (command.line, command.folder) == ("jest a", "packages/a")
    assert first(tmp_path, files, "packages/b").line == "jest b"
    assert first(tmp_path, files).line == "turbo run test"


@pytest.mark.parametrize(
    "run",
    [
        *("pnpm -r test", "npm test --workspaces", "yarn workspaces run test", "lerna run test"),
        *(
            "yarn workspaces foreach -A run test",
            "npx nx run-many -t test",
            "npx turbo run test --parallel",
        ),
    ],
)
def test_commands_for_all_members_stay_as_they_are(tmp_path: Path, run: str) -> None:
    files = {**MEMBERS, WORKFLOW: workflow(run)}
    assert first(tmp_path, files).line == run
    assert first(tmp_path, files, "packages/a").line == "jest a"
    assert (
        first(tmp_path, files, "packages/c").line,
        first(tmp_path, files, "packages/c").folder,
    ) == (run, ".")


@pytest.mark.parametrize(
    ("run", "line"),
    [
        ('pnpm --filter "...[origin/main]" test', "pnpm -r test"),
        ("npx nx affected -t test --base=origin/main", "npx nx run-many -t test"),
        ("npx turbo run test --filter=[HEAD^1] --parallel", "npx turbo run test --parallel"),
        ("lerna run test --since origin/main --stream", "lerna run test --stream"),
    ],
)
def test_a_filter_by_what_changed_is_for_all_members(tmp_path: Path, run: str, line: str) -> None:
    command = first(tmp_path, {**MEMBERS, WORKFLOW: workflow(run)})
    assert " ".join(command.line.split()) == line


def test_a_root_without_tests_has_its_members(tmp_path: Path) -> None:
    files = {
        **MEMBERS,
        "package.json": '{"name": "root"}',
        WORKFLOW: workflow("yarn workspace @x/b test"),
    }
    command = first(tmp_path, files)
    assert (command.line, command.folder) == ("jest b", "packages/b")


def test_a_folder_without_a_manifest_is_the_projects(tmp_path: Path) -> None:
    files = {
        WORKFLOW: workflow("cd src && python manage.py test"),
        "src/manage.py": "",
        "pyproject.toml": "",
    }
    assert (first(tmp_path, files).line, first(tmp_path, files).folder) == (
        "python manage.py test",
        "src",
    )


# -- hostile files -------------------------------------------------------------------------------------

FILES = (
    WORKFLOW,
    *(
        ".github/workflows/b.yaml",
        ".gitlab-ci.yml",
        ".circleci/config.yml",
        "azure-pipelines.yml",
        ".travis.yml",
    ),
    *("tox.ini", "setup.cfg", "pyproject.toml", "hatch.toml", "noxfile.py", "Makefile", "justfile"),
    *("tox.toml", "package.json", "Pipfile", "manage.py"),
)


class _InMemory(RepoContext):
    files: dict[str, str]

    def read_text(self, path: str) -> str:
        if path not in self.files:
            raise RepositoryError(path)
        return self.files[path]


def in_memory(files: dict[str, str]) -> RepoContext:
    return _InMemory(
        root=Path("/nowhere"),
        base_commit="0" * 40,
        tracked_files=tuple(files),
        manifests=(),
        fix_id="f",
        gate_transition_id="g",
        files=files,
    )


def is_bounded(commands: tuple[TestCommand, ...]) -> bool:
    return len(commands) <= test_commands.MAX_LISTED and all(
        len(one.before) <= test_commands.MAX_BEFORE
        and one.line
        and "\0" not in one.line
        and not one.folder.startswith(("/", ".."))
        for one in commands
    )


WORDS = st.sampled_from(
    [
        *(
            "on",
            "push",
            "jobs",
            "test",
            "steps",
            "run",
            "name",
            "env",
            "strategy",
            "matrix",
            "include",
            "exclude",
            "if",
        ),
        *(
            "uses",
            "with",
            "services",
            "image",
            "script",
            "before_script",
            "extends",
            "variables",
            "workflows",
            "commands",
        ),
        *(
            "docker",
            "parallel",
            "rules",
            "stages",
            "pool",
            "environment",
            "working-directory",
            "parameters",
            "<<",
        ),
        *(
            "pytest -q",
            "npm test",
            "tox",
            "nox -s tests",
            "make test",
            "cd ..",
            "hatch run test",
            "poe test",
            "$X",
        ),
        *(
            "${{ matrix.a }}",
            "${{ (((",
            "./.github/workflows/b.yaml",
            "true",
            "",
            "test",
            "npm run test && npm test",
        ),
        *(
            "{posargs}",
            "{[testenv]commands}",
            "envlist",
            "scripts",
            "tasks",
            "cmd",
            "tests",
            "tool",
            "&& ; |",
            "'",
        ),
    ]
)
TREES = st.recursive(
    st.one_of(WORDS, st.none(), st.integers(), st.text(max_size=12)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(WORDS, inner, max_size=5)),
    max_leaves=40,
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.dictionaries(st.sampled_from(FILES), TREES, min_size=1, max_size=6),
    st.sampled_from([".", "a"]),
)
def test_any_tree_is_read_or_left_out(trees: dict[str, object], folder: str) -> None:
    assert is_bounded(
        own_commands(in_memory({path: json.dumps(tree) for path, tree in trees.items()}), folder)
    )


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.sampled_from(FILES), st.text(max_size=200), min_size=1, max_size=6))
def test_any_text_is_read_or_left_out(texts: dict[str, str]) -> None:
    assert is_bounded(own_commands(in_memory(texts), "."))


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.one_of(WORDS, st.text(max_size=15)), max_size=12).map(" ".join))
def test_any_script_is_cut_or_left_out(script: str) -> None:
    files = {
        WORKFLOW: workflow(script),
        "package.json": manifest(test=script, x=script),
        "tox.ini": f"[testenv]\ncommands = {script}",
    }
    assert is_bounded(own_commands(in_memory(files), "."))


#: Nine uses of each line before: 9^60 values.
LAUGHS = "c0: &c0 [x]\n" + "".join(
    f"c{n}: &c{n} [{','.join([f'*c{n - 1}'] * 9)}]\n" for n in range(1, 60)
)
#: Each target makes two others, by itself and by make.
DOUBLING = "A=$(A)$(A)\ntest: t0\n" + "".join(
    f"t{n}: t{n + 1} t{n + 2}\n\t$(MAKE) t{n + 1} t{n + 2}\n" for n in range(200)
)
NOX_LOOP = """
import nox
@nox.session
def tests(session):
    x = ["a"]
    x = x + x + [*x, *x]
    session.run('pytest', *x)
    tests(session)
"""
#: Texts of lists within lists: 2^60 characters.
NOX_LISTS = (
    "x = ['a']\n"
    + "x = [x, x]\n" * 60
    + (
        "def tests(session):\n    session.run('pytest', f'{x}')\ntests = nox.session(tests)\n"
        "@nox.session\ndef more(session):\n    session.run(f'{x}')\n"
    )
)
#: Each job extends five, and these five each other.
EXTENDS = {f"j{n}": {"extends": [f"b{m}" for m in range(5)]} for n in range(3_000)} | {
    f"b{n}": {"extends": [f"b{(n + m) % 5}" for m in range(5)]} for n in range(5)
}
#: Commands that build, each with all of those before it; sessions that are read anew for each command.
BUILDS = workflow("tsc\n" * 3_000)
MANY_NOX = {
    WORKFLOW: workflow("\n".join(f"nox -- {n}" for n in range(1_000))),
    "noxfile.py": "import nox\n"
    + "".join(
        f"@nox.session\ndef s{n}(session):\n" + "    session.run('pytest')\n" * 20
        for n in range(300)
    ),
}
WIDE = {"a": [f"v{n}" for n in range(9_000)], "exclude": [{"a": f"v{n}"} for n in range(9_000)]}
ITSELF = {"steps": [{"uses": "./.github/actions/a"}] * 200}


@pytest.mark.parametrize(
    "files",
    [
        {WORKFLOW: "a: " + "[" * 100_000},
        {WORKFLOW: "{" * 5_000},
        {WORKFLOW: LAUGHS},
        {WORKFLOW: "on: push\njobs: &j\n  test: *j\n"},
        {WORKFLOW: "on: push\njobs:\n  <<: &x {<<: *x, test: {steps: [{run: pytest}]}}\n"},
        {WORKFLOW: "!!python/object/apply:os.system ['exit 3']"},
        {".gitlab-ci.yml": "a: {extends: .b, script: x}\n.b: {extends: a}"},
        {".gitlab-ci.yml": "t: {script: [!reference [t, script], !reference [t, script]]}"},
        {"package.json": manifest(test="npm run b && npm run b", b="npm test && npm test")},
        {"package.json": manifest(test="npm test")},
        {"package.json": '{"scripts": ' + "[" * 100_000},
        {"pyproject.toml": "a = " + "[" * 50_000},
        {"noxfile.py": "x = " + "(" * 5_000},
        {"noxfile.py": "x = " + "-" * 50_000 + "1"},
        {"noxfile.py": NOX_LOOP},
        {"noxfile.py": NOX_LISTS},
        {".gitlab-ci.yml": json.dumps(EXTENDS)},
        {WORKFLOW: BUILDS, "tsconfig.json": "x" * 400_000},
        MANY_NOX,
        {WORKFLOW: workflow("pytest", strategy={"matrix": WIDE})},
        {"tox.ini": "[tox]\nenvlist = a" + "\t" * 300_000 + "b\n"},
        {WORKFLOW: workflow("${{" * 6_000)},
        {
            ".travis.yml": json.dumps(
                {
                    "script": "x",
                    "env": ["a" * 400_000],
                    "matrix": {"include": [{"script": "x", "env": "a" * 2_000}] * 200},
                }
            )
        },
        {"tox.ini": "[tox]\nenvlist = " + "-".join(["{a,b,c,d,e,f,g,h}"] * 12)},
        {"tox.ini": "[testenv]\ncommands = {[testenv]commands}{[testenv]commands}\n"},
        {"tox.ini": "[testenv]\nkey\n  its value is none, and this continues it\n"},
        {"Makefile": DOUBLING},
        {"pyproject.toml": '[tool.poe.tasks]\ntest = ["test", "test", "poe test"]\n'},
        {"hatch.toml": '[envs.a]\ntemplate = "a"\n[envs.a.scripts]\ntest = ["test", "test"]\n'},
        {
            "justfile": "test: test a b\n  just test\n  just a\na: b test\n  just test\nb: a\n  just a\n"
        },
        {WORKFLOW: workflow("pytest\n" * 3_000)},
        {WORKFLOW: workflow("x" * 600_000)},
        {WORKFLOW: workflow("$(" * 5_000 + "'" * 5_001)},
        {WORKFLOW: workflow("pytest ${{ " + "(" * 5_000 + " }}")},
        {WORKFLOW: workflow("pytest " + "${{ !" * 3_000)},
        {f".github/workflows/{n}.yml": workflow("pytest") for n in range(500)},
        {WORKFLOW: json.dumps({"on": "push", "jobs": {"t": {"uses": f"./{WORKFLOW}"}}})},
        {WORKFLOW: workflow("x", strategy={"matrix": {f"a{n}": [*"abcdefgh"] for n in range(30)}})},
        {
            ".github/actions/a/action.yml": json.dumps({"runs": ITSELF}),
            WORKFLOW: json.dumps({"on": "push", "jobs": {"t": ITSELF}}),
        },
    ],
    ids=[str(number) for number in range(39)],
)
def test_hostile_files_are_bounded(files: dict[str, str]) -> None:
    assert is_bounded(own_commands(in_memory(files), "."))


def test_yaml_beyond_a_limit_is_left_out() -> None:
    assert task_files.parsed_yaml("[" * 30 + "]" * 30) is not None
    deep = task_files.MAX_YAML_DEPTH + 1
    assert task_files.parsed_yaml("[" * deep + "]" * deep) is None
    assert task_files.parsed_yaml("[" + "a," * task_files.MAX_YAML_VALUES + "]") is None
    assert task_files.parsed_yaml("- &a 1\n" + "- *a\n" * (task_files.MAX_YAML_ALIASES + 1)) is None
    assert task_files.parsed_yaml("a: 'x" + "y" * task_files.MAX_FILE_CHARS + "'") is None


def test_files_and_steps_beyond_a_limit_are_left_out() -> None:
    many = {
        f".github/workflows/{n:04}.yml": workflow(f"pytest {n}")
        for n in range(ci_jobs.MAX_CI_FILES + 5)
    }
    assert (
        len(ci_jobs.ci_jobs(tuple(many), lambda path: json.loads(many[path])))
        == ci_jobs.MAX_CI_FILES
    )
    long = "pytest\n" * shell_commands.MAX_SCRIPT_CHARS
    assert shell_commands.split_script(long) == []
