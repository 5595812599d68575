"""What hostile code would try from inside, one small function each; nothing here harms a machine.

An escape that is shut raises OSError (or ShutError, where the system answers in another way); one that
ends has found a way. Everything runs twice, inside a sandbox and plainly, so nothing may change the
machine where it succeeds: files are opened and never written, calls get arguments that the kernel
refuses once it has let the caller pass. Standard library only: the folder is copied and
run by the machine's own Python, each escape in a process of its own.
"""
