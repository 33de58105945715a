"""What importing costs."""

import subprocess
import sys


def test_the_core_needs_torch_and_numpy_alone():
    code = (
        "import sys, engram; "
        "heavy = {'typer', 'click', 'rich', 'matplotlib', 'safetensors', 'scipy'}; "
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
