"""Every limit that more than one module needs, each with its reason. ADR numbers in docs/adr."""

#: Retries per gate transition after the first attempt (ADR-0014): debugging loses 60-80 % of its power
#: within 2-3 attempts (DDI, arXiv 2506.18403). No setting raises it. The audit trail, which imports nothing
#: of this package, has a copy in its contract (``fallback_audit/contract/attempt.py``); a test compares
#: them.
MAX_RETRIES = 3

#: Candidates of a recipe that a first attempt may try, one after the other (ADR-0048): each costs a run of
#: all gates, and what three ways to the same version broke is for a model to fix.
MAX_RECIPE_CANDIDATES = 3

#: Most sources that a result of *unknown* lists: more have one cause, which is repaired once.
MAX_UNREAD_LISTED = 20

#: Seconds without a line on the terminal until one reports what runs: a silence of 20 s looks like a
#: command that hangs.
HEARTBEAT_S = 15.0

#: Most commands by which a user tests a project: each may take the time of a whole suite.
MAX_TEST_COMMANDS = 8

#: Most characters of one of them: a line of a shell, as a CI file has it.
MAX_TEST_COMMAND_CHARS = 4_000

#: Seconds that one run of a project's tests may take, however long the base commit's own take: as CI
#: services have it for a step.
MAX_TESTS_S = 3_600.0

#: Most folders that a person limits a fix to: more are another way to say "all but some".
MAX_PATHS_GIVEN = 64

#: Author calls per attempt; repair, strict regeneration and repeat share it (ADR-0014).
MAX_AUTHOR_CALLS = 3

#: Most model calls of one attempt that run at the same time: one per retrieved example.
MAX_PARALLEL_CALLS = 4

#: Most paths that self-RAG's beam may keep: each costs one critique per candidate and step.
MAX_BEAM_WIDTH = 4

#: Bytes of a package's own code in a prompt if the window is small
#: (docs/evaluation/own-code/code-budget.md).
SMALL_CODE_ROOM_BYTES = 12_000

#: … and at most, in kilobytes: half of a window of 500,000 tokens.
MAX_CODE_ROOM_KB = 1_000

#: Tokens of an answer of a model that does not think first: a plan of several places is about 8 kB.
SMALL_OUTPUT_TOKENS = 2_048

#: Tokens of an answer of a model that may think first: its thinking counts.
OUTPUT_TOKENS = 16_000

#: Estimated dollars that a fix may use if its user names no cap for a fix (ADR-0120). A call of 60,000
#: tokens was $0.21, so four attempts of two calls each are $1.70: more than a fix needs that succeeds.
USD_PER_FIX = "2.00"

#: Tokens of the longest answers that models write.
MAX_OUTPUT_TOKENS = 128_000

#: Most UTF-8 bytes of a distilled diagnosis, not a log: more is a typed error.
MAX_FAILURE_SUMMARY_BYTES = 8_192

#: Most UTF-8 bytes of the summary in a retry's prompt, fence included (ADR-0011).
MAX_FENCED_SUMMARY_BYTES = 4_096

#: Most few-shot examples in a first attempt's prompt: three right ones beat twelve plausible ones.
MAX_EXAMPLES = 4

#: Most UTF-8 bytes of the text and edits of one example, every line's prefix included: what the fence's cap
#: of 3 KiB leaves after its markers, the findings in its header, and redactions longer than the secret.
MAX_EXAMPLE_BYTES = 2_640

#: Bytes of the prefix of each line of a fence.
MAX_FENCE_PREFIX_BYTES = 2

#: Most tracked files that RepoContext lists; a larger repository is cut, and marked as cut.
MAX_TRACKED_FILES = 200_000

#: Most bytes of a target's file that is read into memory. The largest real lockfiles are about 5 MB.
MAX_FILE_BYTES = 16 * 1024 * 1024

#: Most bytes of an OSV record; the largest published ones are below 1 MB.
MAX_ADVISORY_BYTES = 4 * 1024 * 1024

#: Most bytes of a whole unified diff. Lockfile diffs of a bump seldom pass 1 MB.
MAX_PATCH_BYTES = 8 * 1024 * 1024
