"""Small projects with vulnerable dependencies, not tests of ours: their suites are run by the gates."""

collect_ignore_glob = ["cases/*"]
