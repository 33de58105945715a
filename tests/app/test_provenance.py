"""What a result says it was made with."""

import shutil
import subprocess
import sys
from ast import literal_eval
from pathlib import Path

import pytest

import engram
from engram.app.runs import stamp

PACKAGE = Path(engram.__file__).parent
ASK = "from engram.app.runs import stamp; print(stamp('engram', gpu={gpu})['versions'])"


def made_with(source, *, gpu=False, **environment):
    """What a process says whose package lies in ``source``."""
    asked = [sys.executable, "-B", "-c", ASK.format(gpu=gpu)]
    environment = {"PYTHONPATH": str(source), "PATH": "/usr/bin:/bin:/usr/local/bin", **environment}
    done = subprocess.run(asked, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return literal_eval(done.stdout)


def git(folder, *words):
    settings = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    command = ["git", "-C", str(folder), *settings, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A checkout of its own, of what a worker and its results need."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    root = tmp_path_factory.mktemp("checkout")
    leave = shutil.ignore_patterns("__pycache__", "*.gz")
    shutil.copytree(PACKAGE, root / "src" / "engram", ignore=leave)
    (root / ".gitignore").write_text("__pycache__\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "One")
    return root


def test_a_result_names_the_commit_of_its_checkout_and_whether_the_source_differs(checkout):
    commit = git(checkout, "rev-parse", "HEAD")
    (checkout / "notes.txt").write_text("beside the source")
    assert made_with(checkout / "src")["commit"] == commit
    more = checkout / "src" / "engram" / "more.py"
    more.write_text('"""Changed."""\n')
    assert made_with(checkout / "src")["commit"] == f"{commit}+changes"
    more.unlink()


def test_a_copy_without_a_history_may_be_told_its_commit(checkout, tmp_path):
    shutil.copytree(checkout / "src", tmp_path / "src")
    assert "commit" not in made_with(tmp_path / "src")
    assert made_with(tmp_path / "src", ENGRAM_COMMIT="abc123")["commit"] == "abc123"


def test_the_kernels_are_named_for_a_gpu_alone(checkout, tmp_path):
    assert "kernels" not in made_with(checkout / "src")
    fake = tmp_path / "triton-1.2.3.dist-info"
    fake.mkdir()
    (fake / "METADATA").write_text("Metadata-Version: 2.1\nName: triton\nVersion: 1.2.3\n")
    both = f"{checkout / 'src'}:{tmp_path}"
    before = made_with(both, gpu=True)["kernels"]
    assert before.startswith("triton 1.2.3, ")
    with (checkout / "src" / "engram" / "kernels" / "layers.py").open("a") as file:
        file.write("# Changed.\n")
    assert made_with(both, gpu=True)["kernels"] != before
    assert made_with(both, gpu=True)["torch"]


def test_packages_are_not_read_anew_for_every_result(monkeypatch):
    """A driver stamps thousands of them, and torch's metadata takes half a millisecond."""
    first = stamp("engram")

    def read(_):
        raise AssertionError("it was read again")

    monkeypatch.setattr("importlib.metadata.distribution", read)
    assert stamp("engram")["versions"] == first["versions"]
