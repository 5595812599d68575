"""Which npm projects a repository has, and where they hold a package."""
