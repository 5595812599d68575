"""What the cases' applications bring for themselves are no tests of ours."""

collect_ignore = ["sources"]
