"""The commit that a visitor names."""

import git


def commit(folder, name):
    return git.Repo(folder).commit(name).hexsha
