"""Code that does not end: it blocks whoever runs it, as a loop without end does, and leaves the processor
to others. A stand-in that spins for seconds takes them from every other test."""

#: Of JavaScript, at any place of a module: nothing else of the process is run meanwhile.
IN_NODE = "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);\n"

#: Of Python: a function that does not return.
IN_PYTHON = "import signal\ndef answer():\n    while True:\n        signal.pause()\n"
