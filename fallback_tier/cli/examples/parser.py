"""The verbs of ``fallback-tier examples``, made when the command is given, so that others don't pay."""

from argparse import ArgumentParser

from fallback_tier.cli import arguments
from fallback_tier.cli.arguments import RECORD, add
from fallback_tier.cli.exit_codes import epilog


def add_verbs(examples: ArgumentParser) -> None:
    """Add the verbs that fill, search, show and check the memory, and show the origin of its records."""
    verbs = examples.add_subparsers(dest="verb", metavar="VERB", required=True)
    _add_ingest(verbs)
    _add_harvest(verbs)
    _add_releases(verbs)
    _add_index(verbs)
    _add_search(verbs)
    _add_list(verbs)
    show = _verb(verbs, "show", "show one example, with its earlier versions")
    show.add_argument("example_id", metavar="ID", help="as `examples list` prints it")
    _add_withdraw(verbs)
    influenced = _verb(verbs, "influenced", "list the fixes that an example had a part in")
    influenced.add_argument("example_id", metavar="ID", help="as `examples list` prints it")
    add(influenced, *RECORD)
    influenced.set_defaults(handler="fallback_tier.cli.examples.sources:influenced")
    manifest = _verb(
        verbs, "manifest", "show the corpus, chunker and model that the store is made of"
    )
    manifest.set_defaults(handler="fallback_tier.cli.examples.index:manifest")
    validate = _verb(
        verbs,
        "validate",
        "report every difference from the manifest; repairs nothing (exit code 6 on drift)",
    )
    validate.set_defaults(handler="fallback_tier.cli.examples.index:validate")


def _verb(verbs: "arguments.Verbs", name: str, help: str, description: str = "") -> ArgumentParser:  # noqa: A002
    """Add a verb with a store and JSON, run by the function of its name."""
    verb = verbs.add_parser(name, help=help, description=description or None, epilog=epilog())
    verb.add_argument("--store", required=True, metavar="DB", help="the example store")
    add(verb, "--json")
    verb.set_defaults(handler=f"fallback_tier.cli.examples.records:{name}")
    return verb


def _add_ingest(verbs: "arguments.Verbs") -> None:
    ingest = _verb(
        verbs,
        "ingest",
        "add validated fixes from files",
        "Add the records of all files, or none; the store is made if absent. Content that\n"
        "is there already is counted, not added; a known id with other content becomes its\n"
        "next version; what was withdrawn stays out.",
    )
    ingest.add_argument(
        "records", nargs="+", metavar="FILE", help="JSON lines; plain, gzip (.gz) or xz (.xz)"
    )
    ingest.add_argument(
        "--format",
        choices=("auto", "records", "dataset"),
        default="auto",
        help="records: solved examples; dataset: advisories with the diff of their fix "
        "(default: by the first line of each file)",
    )


def _add_harvest(verbs: "arguments.Verbs") -> None:
    harvest = _verb(
        verbs,
        "harvest",
        "add fixes made here that passed every gate",
        "Make an example of each fix on record that was proved, from the audit trail and\n"
        "the evidence.",
    )
    harvest.add_argument(
        "fix_ids", nargs="*", metavar="FIX", help="fix identifiers (`audit log`); none: all"
    )
    harvest.add_argument("--repo", required=True, metavar="REPO", help="the repository fixed")
    harvest.add_argument(
        "--advisory",
        required=True,
        action="append",
        metavar="PATH",
        help="its advisories (OSV records, or a folder of them); may be given again",
    )
    harvest.add_argument(
        "--licence", metavar="NAME", help="of the code (default: as its manifest declares)"
    )
    add(harvest, *RECORD)
    harvest.set_defaults(handler="fallback_tier.cli.examples.sources:harvest")


def _add_releases(verbs: "arguments.Verbs") -> None:
    releases = _verb(
        verbs,
        "releases",
        "add the difference between a vulnerable release and the fixed one",
        "Get both archives from the registry (or from --before and --after), and keep what\n"
        "changed in the files that matter.",
    )
    releases.add_argument("advisory", metavar="ADVISORY", help="an OSV record (JSON)")
    releases.add_argument("--package", metavar="NAME", help="where it names several packages")
    releases.add_argument("--vulnerable", metavar="VERSION", help="default: the last affected one")
    releases.add_argument("--fixed", metavar="VERSION", help="default: the first fixed one")
    releases.add_argument("--before", metavar="ARCHIVE", help="the vulnerable release, from disk")
    releases.add_argument("--after", metavar="ARCHIVE", help="the fixed release, from disk")
    releases.add_argument(
        "--licence", metavar="NAME", help="of the code (default: as the releases declare)"
    )
    releases.set_defaults(handler="fallback_tier.cli.examples.sources:releases")


def _add_index(verbs: "arguments.Verbs") -> None:
    index = _verb(
        verbs,
        "index",
        "chunk and embed what is new; continues where it stopped",
        "Cut again what another version of the chunker cut, and embed what has no vector\n"
        "yet (extra `embeddings`; without it, words alone are searched).",
    )
    index.add_argument("--rebuild", action="store_true", help="embed everything again")
    index.set_defaults(handler="fallback_tier.cli.examples.index:index")


def _add_search(verbs: "arguments.Verbs") -> None:
    search = _verb(verbs, "search", "show which examples would be found, and why")
    question = search.add_mutually_exclusive_group(required=True)
    question.add_argument("text", nargs="?", metavar="TEXT", help="an advisory's text")
    question.add_argument("--advisory", metavar="FILE", help="an OSV record (JSON)")
    for name in ("ecosystem", "package", "cwe", "language"):
        search.add_argument(f"--{name}", metavar=name.upper(), help="of the question, beside TEXT")
    add(search, "--routing-floor")
    search.set_defaults(handler="fallback_tier.cli.examples.index:search")


def _add_list(verbs: "arguments.Verbs") -> None:
    listing = _verb(verbs, "list", "list the examples")
    for name in ("ecosystem", "package", "language", "cwe"):
        listing.add_argument(f"--{name}", metavar=name.upper(), help="only those of it")
    listing.add_argument(
        "--state",
        choices=("live", "superseded", "withdrawn", "all"),
        default="live",
        help="default: live",
    )
    listing.set_defaults(handler="fallback_tier.cli.examples.records:list_examples")


def _add_withdraw(verbs: "arguments.Verbs") -> None:
    withdraw = _verb(
        verbs,
        "withdraw",
        "remove an example that was found wrong",
        "It is never found again, and does not come back by an ingest; its text stays on\n"
        "file with the reason. `examples influenced` lists what it had a part in.",
    )
    withdraw.add_argument("example_id", metavar="ID", help="as `examples list` prints it")
    withdraw.add_argument("--reason", required=True, help="why; kept for good")
    withdraw.add_argument("--by", metavar="NAME", help="who (default: the user's name)")
