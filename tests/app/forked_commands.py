"""Commands in processes of their own, in the fake laboratory, which import all they need once."""

import json
import sys
from pathlib import Path

_SCRIPT = """
import gc, json, os, sys
here, cases, told = sys.argv[1:]
sys.path.insert(0, here)
import engram.app.cli, fake_laboratory
engram.lab.protocol = sys.modules["engram.lab.protocol"] = fake_laboratory
import engram.app.report
gc.freeze()  # what is imported need not be looked through by every process that ends
codes = []
for words in json.loads(cases):
    child = os.fork()
    if not child:
        sys.argv = ["engram", *words]
        engram.app.cli.main()
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
with open(told, "w") as file:
    json.dump(codes, file)
"""


def one_by_one(cases, told):
    """Return what to call for a process of each command in turn; their exit codes go to a file."""
    words = json.dumps([list(map(str, words)) for words in cases])
    quiet = ["-W", "ignore::DeprecationWarning"]  # of a fork where a library has threads
    return [sys.executable, *quiet, "-c", _SCRIPT, str(Path(__file__).parent), words, str(told)]
