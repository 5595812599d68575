"""A fix in a process of its own, whose steps somebody else asks for, one by one."""
