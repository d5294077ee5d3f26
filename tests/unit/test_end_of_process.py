"""The end of the process: nothing is left out, though the interpreter is not taken apart."""

from __future__ import annotations

import subprocess
import sys

_BEGIN = """
import atexit, sys, threading
from vlmtui.__main__ import run
atexit.register(print, "at exit", file=sys.stderr)
class Left:
    def __del__(self):
        print("taken apart", file=sys.stderr)
left = Left()
sys.argv = ["vlmtui", *sys.argv[1:]]
"""


def ended(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", f"{_BEGIN}{before}\nrun()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_exit_hooks_run_and_the_interpreter_is_not_taken_apart() -> None:
    end = ended("models", "show", "qwen2_vl")
    assert (end.returncode, end.stderr) == (0, "at exit\n")
    assert end.stdout.endswith("\n") and "qwen2_vl" in end.stdout


def test_the_exit_code_of_a_failure_stays() -> None:
    end = ended("models", "show", "no_such_model")
    assert end.returncode == 2 and "no_such_model" in end.stderr


def test_a_thread_that_still_works_is_waited_for() -> None:
    thread = """
def work():
    threading.main_thread().join()  # ends when the interpreter begins to be taken apart
    print("done", flush=True)
threading.Thread(target=work).start()
"""
    end = ended("models", "show", "qwen2_vl", before=thread)
    assert end.returncode == 0 and end.stdout.endswith("done\n")
