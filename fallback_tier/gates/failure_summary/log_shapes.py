"""The lines that test runners, compilers and package clients print of a failure: their shapes.

Each pattern is of output that was recorded from the real tool (tests/fixtures/logs), colours and
durations already taken out. Reading them is ``diagnosis``'s work.
"""

import re

_NAMES = r"(?:[^\s:'\"()<>,/]+/)"
_INSTALLED = r"site-packages|node_modules|lib/python3[\d.]*|venvs|scratch-\w+"

#: At most so many folders above what is installed: each slash of a line may be where a path begins.
_PATH_OF_THIS_MACHINE = (
    rf"(?<![\w.:/])/(?:(?:tmp|var/tmp|root|home|opt|usr)/|{_NAMES}{{,30}}(?:{_INSTALLED})/){_NAMES}*"
    r"([^\s:'\"()<>,/]+)"
)

#: What differs between two runs or two machines, and what stands in its place. Of a whole log: none
#: matches a line end.
NOISE = tuple(
    (re.compile(pattern, re.MULTILINE), replacement)
    for pattern, replacement in (
        (r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[@-Z\\-_])", ""),
        # Control, zero-width, bidi and line-separator characters.
        (r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]", ""),
        (r"\bfile://(?=/)", ""),
        # A path of this machine: temporary, of a user, of an interpreter, of our cache. (Gates make
        # the repository's own relative; /etc/passwd in an assertion is what the test is about.)
        (_PATH_OF_THIS_MACHINE, r".../\1"),
        (r"\b\d{4}-\d\d-\d\d[T ]\d\d[:_]\d\d[:_]\d\d(?:[.,_]\d+)?(?:Z|[+-]\d\d:?\d\d)?", "<time>"),
        (r"\bin \d+(?:\.\d+)?m?s\b|\(\d+(?:\.\d+)? ?m?s\)|\bduration_ms:? [\d.]+", "<time>"),
        (r"\b0x[0-9a-fA-F]{4,}\b", "0x..."),
        (r"\btmp[a-z0-9_]{6,10}\b", "tmp..."),
        (r"\b(pid|PID)[ =:]+\d+", r"\1 <n>"),
        (r"\b([Pp]ython|Node\.js|node|npm|v8)[ /@]?v?\d+(?:\.\d+)+\b", r"\1"),
        # Hints that newer Pythons add to the same exception.
        (r"[.;]? (?:Did you (?:mean|forget)\b.*\?|\(consider renaming .*\))$", ""),
    )
)  # fmt: skip


#: A test that failed, in one line.
TEST = re.compile(
    r"(?:FAILED|ERROR) (?P<pytest>[^\s(](?:\S*|[^\s\[]*\[.*?\]))(?: - (?P<reason>.*))?"
    r"|(?:FAIL|ERROR): (?P<unittest>\S+ \([\w.<>]+\).*)"
    r"|\s*not ok \d+ (?:- )?(?P<tap>(?!.* # (?:TODO|SKIP)\b).+?)(?: # .*)?"
    r"|\s*\u2716 (?P<spec>.+) <time>"
    r"|  \u25cf (?P<jest>(?!Console$|Test suite failed to run$|\w+ Warning:?$).+)"
    r"|\s*FAIL  ?(?P<file>\S+\.[cm]?[jt]sx?(?: > .+)?)(?: <time>| \[ .* \])?"
    r"|\s*\u2718 \[fail\]: (?P<ava>.+)"
)

#: mocha and jasmine number their failures below such a line, with titles over several lines.
NUMBERED_BEGIN = re.compile(r"  \d+ failing|Failures:")
NUMBERED = re.compile(r" {0,3}\d+\) (?P<title>.+)")
NUMBERED_MORE = re.compile(r" {7,}(?P<title>\S.*)")
NUMBERED_END = re.compile(r"  Message:")

ASSERTION = re.compile(
    r"E   (?P<pytest>\s*(?!\?[ +^-]+$)\S.*)"
    r"|\s*(?P<raised>(?:Uncaught )?(?:[A-Za-z_][\w.]*(?:Error|Exception|Failure|Exit)|Error(?=: ))\b"
    r"(?: \[\w+\])?(?::.*)?)"
    r"|\s*(?P<tap>(?:expected|actual): (?!undefined).*|error: (?:['\"](?!\d+ subtests? ).*|\|-))"
)

#: Below such a line stands the failure's own message, one line.
MESSAGE_BEGIN = re.compile(r"  \u25cf (?!Console$).+|  Message:")
#: What says no more than which matcher was called.
MESSAGE_EMPTY = re.compile(r"\s*expect\(.*")
#: jest's facts of a failed matcher.
MATCHER = re.compile(r"\s{4}(?:Expected|Received|Number of)\b.*")

#: Runners disagree about what - and + mean: the line that tells.
DIFF_BEGIN = re.compile(
    r"\s*(?:(?P<minus>- Expected|\+ Received|--- expected|\+\+\+ actual)(?:\s+[-+] \d+)?"
    r"|(?P<plus>\+ expected - actual|Difference \(- actual, \+ expected\):))"
)
DIFF_LINE = re.compile(r"\s*(?P<sign>[-+])\s*(?P<value>\S.*)")
DIFF_END = re.compile(
    r"\s*(?:at |[\u276f\u203a] |(?:>\s*)?\d+ ?\||\.\.\.$|\d+\) |\u25cf |FAIL |[A-Za-z]*Error\b)"
)

#: What pytest says around a comparison: the first to go where there is no room for all.
CHATTER = re.compile(
    r"\s*(?:Omitting \d+ identical items.*|Differing items:|Full diff.*|\W{1,4}|\.\.\.Full output .*"
    r"|Use -v+ to get .*|(?:\{|\[|\()?\.\.\.)"
)

FRAME = re.compile(
    r"(?P<path>[^\s:/][^\s:]*\.\w+):(?P<line>\d+): (?:in (?P<function>.+)|\w+(?:Error|Exception).*)"
    r"|\s+File \"(?P<file>[^/<\"][^\"]*)\", line (?P<file_line>\d+)(?:, in (?P<file_function>.+))?"
    r"|\s*(?:at |(?!\s))(?:(?:async )?(?P<js_function>[\w.$<>\[\] ]+) \()?"
    r"(?P<js>(?!node:)[^\s:()/'][^\s:()]*\.[cm]?[jt]sx?):(?P<js_line>\d+):\d+\)?"
    r"|\s*[\u276f\u203a] (?:(?P<arrow_function>[\w.$<>\[\] ]+) )?"
    r"(?P<arrow>[^\s:()/'][^\s:()]*\.[cm]?[jt]sx?):(?P<arrow_line>\d+):\d+"
    r"|\s*location: '(?P<location>[^/'][^:']*):(?P<location_line>\d+):\d+'"
)

#: Groups of FRAME that belong together: path, line, function.
FRAME_GROUPS = (
    ("path", "line", "function"),
    ("file", "file_line", "file_function"),
    ("js", "js_line", "js_function"),
    ("arrow", "arrow_line", "arrow_function"),
    ("location", "location_line", None),
)

DIAGNOSTIC = re.compile(
    r"npm (?:error|ERR!) (?P<npm>.*\S)"
    r"|\s*(?P<uv>(?:error|cause): (?!['\"|]).*|\u00d7(?!.*(?: > |\d ?m?s$)).*|\u2570.*)"
    r"|\s*(?P<compiler>(?P<place>[^\s:(]+(?:\(\d+,\d+\)|:\d+(?::\d+)?))"
    r"(?P<message>(?:: | - )(?:fatal )?(?:error|warning)\b.*))"
)
NPM_CHATTER = re.compile(
    r"(?:code ELIFECYCLE|errno |syscall |A complete log|Log files were not|.*-debug-\d|Fix the upstream"
    r"|this command with|to accept an incorrect|For a full report|command (?:sh|failed)|path "
    r"|location |Lifecycle |.*-report\.txt)"
)

#: tsc explains an error in the lines below it, deeper; what begins with a number is the code.
TSC = re.compile(r".*\berror TS\d+: .*")
TSC_MORE = re.compile(r"  +(?!\d)\S.*")

DECORATION = re.compile(r"[\s~^|]*")
