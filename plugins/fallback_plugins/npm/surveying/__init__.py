"""The npm projects of a repository, and the packages that they hold."""
