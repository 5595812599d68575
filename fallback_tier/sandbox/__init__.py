"""Running of programs: clients outside the sandbox, a target's commands inside."""
