import tempfile
import unittest

import git
from app import commit


class CommitTest(unittest.TestCase):
    def test_a_branch_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            made = git.Repo.init(folder, initial_branch="main").index.commit("first")
            self.assertEqual(commit(folder, "main"), made.hexsha)
