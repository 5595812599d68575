"""Lists of capability uses, one list per language and kind. To add one, add a word to the right list.

An entry is a dotted path. A module covers all of its members except constants and exceptions; for modules
that most code uses (``os``, ``process``) single functions are listed. Names that need no import are
``roots``.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from fallback_audit.vocabulary import Capability
from fallback_tier.gates.capability.harmless import Harmless, words
from fallback_tier.gates.capability.harmless_javascript import JAVASCRIPT as _JAVASCRIPT
from fallback_tier.gates.capability.harmless_python import PYTHON as _PYTHON

#: Constants and exceptions of a listed module: they have no effect.
_HARMLESS = re.compile(
    r"[A-Z][A-Z0-9_]*|\w*(?:Error|Exception|Expired|Timeout|Warning)|exceptions|error|timeout|herror|gaierror"
)

#: The name of a CommonJS module's import in an ES module.
_DEFAULT = re.compile(r"\.default(?=\.|$)")

#: A member that can be shown; any other counts as computed.
_NAME = re.compile(r"[\w$]{1,64}")

#: Members of a function that call it.
_CALLING = frozenset({"call", "apply", "bind", "constructor"})

#: Stands for any member, if the name is computed.
ANY = "[*]"

#: Variables that make a program load or run what its own text does not say.
STEERING = words(
    """
    NODE_OPTIONS NODE_PATH NODE_REPL_EXTERNAL_MODULE NODE_EXTRA_CA_CERTS NODE_TLS_REJECT_UNAUTHORIZED
    npm_config_node_options npm_config_script_shell LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT
    DYLD_INSERT_LIBRARIES DYLD_LIBRARY_PATH PYTHONPATH PYTHONSTARTUP PYTHONHOME PYTHONBREAKPOINT
    PYTHONINSPECT PYTHONUSERBASE PYTHONWARNINGS PYTHONPLATLIBDIR PYTEST_ADDOPTS PYTEST_PLUGINS BASH_ENV
    PROMPT_COMMAND PERL5OPT PERL5LIB PERL5DB RUBYOPT RUBYLIB JAVA_TOOL_OPTIONS _JAVA_OPTIONS
    JDK_JAVA_OPTIONS GIT_SSH GIT_SSH_COMMAND GIT_EXEC_PATH GIT_EXTERNAL_DIFF GIT_CONFIG_GLOBAL
    GIT_CONFIG_COUNT
    """
)

#: Names that JavaScript's test runners add to the global namespace.
_RUNNERS_GLOBALS = words(
    """
    QUnit after afterAll afterEach assert before beforeAll beforeEach chai context describe expect
    it jasmine jest sinon specify spyOn suite t tap test vi vitest xdescribe xit
    """
)


@dataclass(frozen=True)
class Table:
    """One language's lists. ``called``: roots that have an effect only if they are called.

    ``loaders`` return the module that their first argument names, ``getters`` the member of their first
    argument that the second one names; ``outer`` are spellings of the namespace that holds the roots, and
    ``ways`` other paths that lead to a module or a root.

    ``environments``: variables that programs started later see; ``settable``: members of the library that a
    program is meant to set. ``safe_with``: a call is harmless if an argument ends with this word.
    ``gives``: what a call of this returns, if it matters. ``carried``: modules that others import, so that
    they have it as a member.
    """

    listed: Mapping[str, Capability]
    roots: frozenset[str]
    loaders: frozenset[str]
    getters: frozenset[str]
    outer: frozenset[str]
    harmless: Harmless
    called: frozenset[str] = frozenset()
    timers: frozenset[str] = frozenset()
    safe_with: Mapping[str, str] = field(default_factory=dict)
    gives: Mapping[str, str] = field(default_factory=dict)
    ways: frozenset[str] = frozenset()
    carried: frozenset[str] = frozenset()
    environments: frozenset[str] = frozenset()
    settable: frozenset[str] = frozenset()

    @cached_property
    def holders(self) -> dict[str, Capability]:
        """Unlisted modules with listed members, with the first such member's kind."""
        kind_by_module: dict[str, Capability] = {}
        for path, kind in self.listed.items():
            while "." in path:
                path = path.rpartition(".")[0]
                if path not in self.listed:
                    kind_by_module.setdefault(path, kind)
        return kind_by_module

    @cached_property
    def _followed(self) -> frozenset[str]:
        followed = self.loaders | self.getters | self.timers | self.outer | self.ways
        return followed | self.holders.keys()

    def normal(self, path: str) -> str:
        """Return the path as the lists spell it, or "" if it leads to nothing that matters."""
        path = _DEFAULT.sub("", path).removeprefix("six.moves.")
        for outer in self.outer:
            if path.startswith(f"{outer}.") and path != f"{outer}.{ANY}":
                path = path.removeprefix(f"{outer}.")
        for candidate in dict.fromkeys((path, path := self.harmless.led_to(path))):
            parts = candidate.split(".")
            for end in range(1, len(parts) + 1):
                entry = ".".join(parts[:end])
                if entry in self.listed:
                    member = [
                        part if _NAME.fullmatch(part) else ANY for part in parts[end : end + 1]
                    ]
                    return ".".join([entry, *member])
        without_any = path.removesuffix(f".{ANY}")
        is_followed = path in self._followed or without_any in self._followed
        return path if is_followed else self.harmless.near(path)

    def kind(self, path: str) -> Capability | None:
        """Return the capability that a normal path uses, or None if it uses none by itself."""
        listed = self._listed(path)
        if listed is None and self.harmless.is_own(path) and not self._allows(path):
            return Capability.UNKNOWN
        return listed

    def _allows(self, path: str) -> bool:
        if path in self._followed or path.removesuffix(f".{ANY}") in self._followed:
            return True
        return any(self.listed_in(path)) or self.harmless.allows(path)

    def steers(self, path: str, name: str) -> bool:
        """Return whether code that runs later, or judges, behaves differently after this member of ``path``
        is set. ``name``: empty if it is computed."""
        if path in self.environments:
            return not name or name == "PATH" or name in STEERING
        if (
            path in self.outer and not self.harmless.carries
        ):  # on these, a program keeps its own names too
            listed = (self.harmless.roots, self.roots, _RUNNERS_GLOBALS)
            return any(name in names for names in listed) if name else path != "window"
        if {path, f"{path}.{name}"} & self.settable:
            return False
        top = path.partition(".")[0]
        is_library = self.harmless.is_own(path) or top in self.harmless.natives
        return is_library or path in self.outer or path in self._caches

    @cached_property
    def _caches(self) -> frozenset[str]:
        require_ways = {path for path in self.ways if path.startswith("require.")}
        return frozenset({*require_ways, *(f"{path}.{ANY}" for path in require_ways)})

    def listed_in(self, path: str) -> Iterator[str]:
        """Yield the listed modules that contain a path."""
        while "." in path:
            path = path.rpartition(".")[0]
            if path in self.listed:
                yield path

    def _listed(self, path: str) -> Capability | None:
        stem, _, member = path.rpartition(".")
        if path in self.listed:
            return self.listed[path]
        if member == ANY and stem in self.holders:
            return self.holders[stem]
        if stem not in self.listed or _HARMLESS.fullmatch(member):
            return None
        if stem in self.called and member not in _CALLING:
            return None
        return self.listed[stem]


def _lists(process: str, network: str, dynamic_code: str) -> dict[str, Capability]:
    return {
        path: kind
        for kind, words in (
            (Capability.PROCESS, process),
            (Capability.NETWORK, network),
            (Capability.DYNAMIC_CODE, dynamic_code),
        )
        for path in words.split()
    }


def _python() -> Table:
    variants = ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")
    os = " ".join(f"os.exec{tail} os.spawn{tail}" for tail in variants)
    eval_roots = "eval exec compile __import__ execfile breakpoint"
    ways = "getattr vars globals locals"
    return Table(
        listed=_lists(
            process=f"""subprocess os.system os.popen os.popen2 os.popen3 os.popen4 {os} os.posix_spawn
                os.posix_spawnp os.fork os.forkpty os.startfile posix.system pty.spawn pty.fork commands
                popen2 multiprocessing concurrent.futures.ProcessPoolExecutor concurrent.futures.process
                asyncio.create_subprocess_exec asyncio.create_subprocess_shell asyncio.subprocess
                distutils.spawn platform.popen webbrowser pexpect sh plumbum invoke fabric psutil.Popen
                anyio.run_process anyio.open_process trio.run_process gevent.subprocess
                twisted.internet.reactor.spawnProcess""",
            network="""socket _socket socketserver SocketServer ssl.get_server_certificate http.client
                http.server httplib BaseHTTPServer urllib.request urllib.urlopen urllib.urlretrieve
                urllib.URLopener urllib.FancyURLopener urllib2 urllib3 requests httpx aiohttp httplib2
                ftplib smtplib smtpd poplib imaplib nntplib telnetlib xmlrpc.client xmlrpc.server
                xmlrpclib asyncio.open_connection asyncio.start_server asyncio.open_unix_connection
                asyncore asynchat paramiko websockets websocket pycurl grpc zmq dns.resolver treq
                tornado.httpclient tornado.websocket twisted.web.client scapy wsgiref.simple_server""",
            dynamic_code=f"""{eval_roots} importlib.import_module importlib.__import__ importlib.reload
                importlib.util.spec_from_file_location importlib.util.module_from_spec
                importlib.machinery.SourceFileLoader imp.load_source imp.load_module runpy zipimport
                __loader__ code.InteractiveInterpreter code.InteractiveConsole types.FunctionType
                types.CodeType pickle.load pickle.loads pickle.Unpickler cPickle.load cPickle.loads
                _pickle dill cloudpickle jsonpickle.decode shelve.open marshal.load marshal.loads
                joblib.load pandas.read_pickle yaml.load yaml.load_all yaml.unsafe_load
                yaml.unsafe_load_all yaml.full_load yaml.UnsafeLoader yaml.Loader ctypes _ctypes cffi
                threading.settrace threading.setprofile threading.settrace_all_threads
                threading.setprofile_all_threads codecs.register
                pkgutil.resolve_name timeit.timeit timeit.Timer cProfile.run pdb.run""",
        ),
        roots=frozenset(f"{eval_roots} {ways} __loader__ __builtins__".split()),
        loaders=frozenset({"__import__", "importlib.import_module", "importlib.__import__"}),
        getters=frozenset({"getattr"}),
        outer=frozenset({"builtins", "__builtins__", "__builtin__"}),
        ways=frozenset({"sys", "sys.modules", *ways.split()}),
        carried=frozenset({"os", "sys", "builtins"}),
        harmless=_PYTHON,
        safe_with={"yaml.load": "SafeLoader", "yaml.load_all": "SafeLoader"},
        environments=frozenset({"os.environ", "os.environb"}),
    )


def _javascript() -> Table:
    timers = "setTimeout setInterval setImmediate"
    network_roots = "fetch XMLHttpRequest WebSocket EventSource WebTransport RTCPeerConnection"
    code_roots = "eval Function importScripts execScript"
    outer = frozenset({"globalThis", "global", "window"})
    return Table(
        listed=_lists(
            process="""child_process worker_threads cluster Worker SharedWorker process.execve execa
                cross-spawn spawn-sync shelljs zx node-pty Bun.spawn Bun.spawnSync Deno.run
                Deno.Command""",
            network=f"""http https http2 net tls dgram dns {network_roots} navigator.sendBeacon
                Bun.connect Bun.listen Deno.connect Deno.listen undici axios got node-fetch cross-fetch
                isomorphic-fetch whatwg-fetch request request-promise request-promise-native superagent
                needle phin bent ky ws socket.io-client nodemailer ssh2 faye-websocket""",
            dynamic_code=f"""{code_roots} vm vm2 isolated-vm safe-eval repl inspector module.createRequire
                module._load module._compile module.register process.binding process._linkedBinding
                process.dlopen require.call require.apply require.bind require.extensions
                Reflect.construct v8.setFlagsFromString WebAssembly.compile
                WebAssembly.instantiate WebAssembly.Module ffi-napi koffi node-serialize.unserialize""",
        ),
        roots=frozenset(
            f"{code_roots} {network_roots} {timers} Worker SharedWorker process navigator Bun Deno"
            " WebAssembly require Reflect module".split()
        )
        | outer,
        loaders=frozenset({"require", "import", "process.getBuiltinModule"}),
        getters=frozenset({"Reflect.get"}),
        ways=frozenset({"Reflect", "require.cache", "require.main"}),
        outer=outer,
        harmless=_JAVASCRIPT,
        called=frozenset({"Function"}),
        timers=frozenset(timers.split()),
        gives={"module.createRequire": "require"},
        environments=frozenset({"process.env"}),
        settable=frozenset({"module.exports", "process.exitCode", "process.title"}),
    )


PYTHON = _python()
JAVASCRIPT = _javascript()
