"""Whose network it is: found by name, by file and from Python; identified; refused."""

import hashlib
import pickle
import shlex
from pathlib import Path

import numpy
import pytest
import torch
from own_networks import HEAD, TINY, write_network
from torch import nn

from engram.app.runs import read_lines
from engram.errors import EngramError
from engram.lab.networks import network_source, register

ROOT = Path(__file__).parents[2]
SHAPE = (4,)


class Here(nn.Sequential):
    def __init__(self, shape, outputs, width=3):
        super().__init__(nn.Linear(shape[0], width), nn.Linear(width, outputs))


def refused(source, outputs=3, arguments=None):
    with pytest.raises(EngramError) as error:
        network_source(source, arguments).check(SHAPE, outputs)
    return str(error.value)


def test_a_class_of_a_file_is_made_with_its_arguments(network_file):
    file = network_file()
    made = network_source(f"{file}:Tiny", {"width": "7"}).check(SHAPE, 3)
    assert made.hidden.weight.shape == (7, 4)
    assert made(torch.zeros(2, 4)).shape == (2, 3)


@pytest.mark.usefixtures("plugins_apart")
def test_the_example_s_residual_network_is_the_registered_one():
    own = network_source(f"{ROOT / 'examples' / 'resnet18.py'}:ResNet18", {"width": 2})
    inputs, made = torch.rand(3, 3, 8, 8), []
    for source in (own, network_source("resnet18-reduced", {"width": 2})):
        torch.manual_seed(0)
        made.append(source.build((3, 8, 8), 5)(inputs))
    assert torch.equal(*made)


def test_what_published_runs_were_made_with_is_what_the_repository_holds():
    files = (ROOT / "results").glob("own-networks.jsonl")
    for row in [row for file in files for row in read_lines(file)]:
        words = shlex.split(row.command)
        given = words[words.index("--network") + 1]
        identity = network_source(str(ROOT / given), row.identity["network"]["arguments"]).identity
        assert identity == row.identity["network"]


def test_a_function_and_a_registered_name_and_python_will_do(network_file):
    file = network_file(f"{TINY}\ndef tiny(shape, outputs):\n    return Tiny(shape, outputs, 2)\n")
    assert network_source(f"{file}:tiny").check(SHAPE, 3).hidden.out_features == 2
    assert network_source("mlp").check(SHAPE, 3)[-1].out_features == 3
    assert network_source("resnet18-reduced", {"width": 2}).check((3, 8, 8), 3)
    assert isinstance(network_source(Here, {"width": 2}).check(SHAPE, 3), Here)
    register("of-this-test", Here)
    assert isinstance(network_source("of-this-test").check(SHAPE, 3), Here)


def test_texts_are_the_numbers_they_look_like(network_file):
    file = network_file(f"{TINY}\ndef noted(shape, outputs, **given):\n    print(given)\n")
    with pytest.raises(EngramError, match=r"must be an nn\.Module"):
        network_source(f"{file}:noted", {"a": "1"}).build(SHAPE, 3)
    given = {"a": "1", "b": "0.5", "c": "true", "d": "gelu", "e": 2}
    assert dict(network_source("mlp", given).arguments) == {
        "a": 1,
        "b": 0.5,
        "c": True,
        "d": "gelu",
        "e": 2,
    }


def test_the_identity_is_of_source_and_arguments_and_not_of_the_place(network_file, tmp_path):
    one, other = network_file(), write_network(tmp_path / "elsewhere")
    digest = hashlib.sha256(TINY.encode()).hexdigest()
    expected = {"name": "Tiny", "source": f"sha256:{digest}", "packages": {}, "arguments": {}}
    assert network_source(f"{one}:Tiny").identity == expected
    assert network_source(f"{other}:Tiny").identity == expected
    wide = network_source(f"{one}:Tiny", {"width": "7"}).identity
    assert wide == expected | {"arguments": {"width": 7}}


def test_modules_beside_the_file_and_below_it_are_part_of_the_identity(network_file, tmp_path):
    package = tmp_path / "parts_of_network"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "deep.py").write_text("from . import deeper\n")
    (package / "deeper.py").write_text("WIDTH = 3\n")
    (tmp_path / "beside_network.py").write_text("import parts_of_network.deep\n")
    (tmp_path / "unused_network.py").write_text("")
    file = network_file(f"{TINY}\ndef late():\n    import beside_network\n    import numpy\n")
    source = f"{file}:Tiny"
    before = network_source(source).identity
    assert before["packages"] == {"numpy": numpy.__version__}
    (tmp_path / "unused_network.py").write_text("changed = True")
    assert network_source(source).identity == before
    for changed in (package / "deeper.py", package / "__init__.py", tmp_path / "beside_network.py"):
        whole = changed.read_text()
        changed.write_text(f"{whole}\n# changed")
        assert network_source(source).identity != before, changed
        changed.write_text(whole)
    assert network_source(source).identity == before


def test_a_network_of_ours_is_filed_under_its_name():
    assert network_source("mlp", {"width": 8}).identity == {
        "name": "mlp",
        "source": "engram 1",
        "arguments": {"width": 8},
    }


def test_a_source_is_sent_to_another_process_with_its_identity(network_file):
    file = network_file()
    source = network_source(f"{file}:Tiny")
    asked = source.identity
    sent = pickle.loads(pickle.dumps(source))
    sent.check_source()
    assert sent == source
    assert sent.identity == asked
    file.write_text(f"{TINY}# changed\n")
    with pytest.raises(EngramError, match="changed after the command was given"):
        sent.check_source()


def test_a_source_that_was_changed_after_it_was_loaded_is_refused(network_file):
    file = network_file()
    network_source(f"{file}:Tiny").check(SHAPE, 3)
    file.write_text(TINY.replace("tanh", "relu"))
    assert "changed after it was loaded" in refused(f"{file}:Tiny")


def test_nothing_is_executed_to_say_which_network_it_is(network_file):
    file = network_file("raise SystemExit('executed')")
    assert network_source(f"{file}:Tiny").identity["name"] == "Tiny"


BAD = {
    "gives 4 outputs": (
        "def Net(shape, outputs):\n    return nn.Linear(shape[0], outputs + 1)",
        "must give 3 outputs for each example, [2, 3] for 2 of them, and gives [2, 4]",
    ),
    "raises when it is made": (
        "def Net(shape, outputs):\n    raise ValueError('too wide')",
        "cannot be made: ValueError in line 6: too wide.",
    ),
    "raises when it is used": (
        "class Net(nn.Linear):\n"
        "    def __init__(self, shape, outputs):\n        super().__init__(3, 3)",
        "cannot be used: RuntimeError",
    ),
    "is no module": ("def Net(shape, outputs):\n    return 3", "must be an nn.Module"),
    "has no parameters": (
        "def Net(shape, outputs):\n    return nn.Flatten()",
        "has no parameters to learn",
    ),
    "has only frozen parameters": (
        "def Net(shape, outputs):\n    return nn.Linear(*shape, outputs).requires_grad_(False)",
        "has no parameters to learn",
    ),
    "gives classes": (
        "class Net(nn.Linear):\n"
        "    def __init__(self, shape, outputs):\n        super().__init__(shape[0], outputs)\n"
        "    def forward(self, x):\n        return super().forward(x).argmax(-1)",
        "must give a tensor of floats, and gives a tensor of torch.int64",
    ),
    "gives a pair": (
        "class Net(nn.Linear):\n"
        "    def __init__(self, shape, outputs):\n        super().__init__(shape[0], outputs)\n"
        "    def forward(self, x):\n        return super().forward(x), None",
        "must give a tensor of floats, and gives (tensor(",
    ),
    "gives no numbers": (
        "class Net(nn.Linear):\n"
        "    def __init__(self, shape, outputs):\n        super().__init__(shape[0], outputs)\n"
        "    def forward(self, x):\n        return super().forward(x) / 0",
        "gives outputs that are not finite",
    ),
    "begins with no numbers": (
        "def Net(shape, outputs):\n    net = nn.Linear(shape[0], outputs)\n"
        "    nn.init.constant_(net.weight, float('nan'))\n    return net",
        "begins with a weight that is not finite",
    ),
    "is of another precision": (
        "def Net(shape, outputs):\n    return nn.Linear(shape[0], outputs).double()",
        "must have parameters of float32, and weight is of float64",
    ),
    "takes no such arguments": (
        "def Net():\n    return nn.Linear(4, 3)",
        "cannot be made: TypeError",
    ),
    "raises when it is imported": ("1 / 0", "ZeroDivisionError in line 5: division by zero"),
    "imports what is not there": ("import not_there_at_all", "No module named 'not_there_at_all'"),
    "is not Python": ("def Net(:", "SyntaxError in line 5"),
    "ends the process": ("import sys; sys.exit(3)", "SystemExit in line 5: 3"),
}


@pytest.mark.parametrize(("body", "sentence"), BAD.values(), ids=BAD)
def test_a_bad_network_is_named_in_one_sentence(network_file, body, sentence):
    file = network_file(f"{HEAD}{body}\n")
    said = refused(f"{file}:Net")
    assert sentence in said
    assert file.name in said
    assert said.count("\n") == 0


def test_what_is_not_there_is_named(network_file):
    file = network_file()
    assert refused("nowhere.py:Net") == (
        "There is no file 'nowhere.py' for the network 'nowhere.py:Net'."
    )
    assert "did you mean 'Tiny'?" in refused(f"{file}:tiny")
    assert "There is no network 'mpl' (did you mean 'mlp'?)" in refused("mpl")
    assert "must say what of the file it is" in refused(str(file))
    assert "No module named 'nobodys'" in refused("nobodys.module:Net")
    assert "(did you mean 'width'?); valid are width" in refused(
        f"{file}:Tiny", arguments={"widht": "3"}
    )
    assert "top level of a module" in refused(lambda shape, outputs: nn.Linear(*shape, outputs))
    assert "must be a class or a function" in refused(3)
