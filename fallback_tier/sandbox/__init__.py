"""How programs are run: clients outside the sandbox, a target's commands inside."""
