"""``make tests-judged``: are tests compared, and does a broken function fail them?"""
