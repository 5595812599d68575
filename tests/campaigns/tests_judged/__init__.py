"""``make tests-judged``: for how many public repositories a fix compares the tests, and whether that means something."""
