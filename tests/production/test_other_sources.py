"""Images, tensors and batches; a network of one's own; a model from elsewhere; exports."""

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from story import told
from trained_settings import SMALL

import engram
from engram import production
from engram.errors import EngramError
from engram.memory import Memory

TINY = """
import torch
from sizes import WIDTH


class Tiny(torch.nn.Module):
    def __init__(self, shape, outputs):
        super().__init__()
        self.body = torch.nn.Conv2d(shape[0], WIDTH, 5, stride=4)
        self.head = torch.nn.Linear(WIDTH, outputs)

    def forward(self, images):
        return self.head(torch.relu(self.body(images)).mean((2, 3)))
"""


@pytest.fixture
def tiny(tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "sizes.py").write_text("WIDTH = 8\n")
    (tmp_path / "code" / "tiny.py").write_text(TINY)
    return f"{tmp_path / 'code' / 'tiny.py'}:Tiny"


def photos(folder, colours, count=30, seed=0):
    """Write images of one colour, more or less, a folder for each."""
    draw = np.random.default_rng(seed)
    for name, colour in colours.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            pixels = np.array(colour) + draw.normal(0, 25, (20, 20, 3))
            image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
            image.save(folder / name / f"{number}.png")
    return f"folder:{folder}"


RED, GREEN, BLUE = (200, 30, 30), (30, 200, 30), (30, 30, 200)


def test_images_are_learned_updated_and_answered(tmp_path, tiny):
    settings = {"size": 16, "passes": 8, "learning_rate": 0.02}
    first = photos(tmp_path / "week1", {"red": RED, "green": GREEN}, 60)
    production.train(first, tmp_path / "m", network=tiny, settings=settings, trust_code=True)
    second = photos(tmp_path / "week2", {"blue": BLUE, "red": RED}, 60, seed=1)
    with pytest.raises(EngramError, match="run only where you say that you trust it"):
        production.update(tmp_path / "m", second)
    result = production.update(
        tmp_path / "m", second, trust_code=True, gate=production.Gate(max_drop=0.3)
    )
    assert result.verdict == "accepted"
    assert result.notes == ["New classes: blue."]
    model = engram.load(tmp_path / "m", trust_code=True)
    new = photos(tmp_path / "new", {"a": BLUE, "b": GREEN}, 4, seed=2)
    found = model.predict(new)
    assert found.answers == ["blue"] * 4 + ["green"] * 4
    assert found.ids[0] == "a/0.png"
    paths = [tmp_path / "new" / "b" / "1.png", tmp_path / "new" / "a" / "2.png"]
    assert model.predict(paths).answers == ["green", "blue"]
    assert {each["column"] for each in result.report["drift"]} >= {"red", "green", "blue"}


def test_the_story_of_a_folder_of_images(tmp_path, tiny):
    """Light that changes from week to week; a third colour in week 3; a week of mixed folders."""

    def week(name, shift, *, blue=False, shuffled=False):
        colours = {"red": RED, "green": GREEN} | ({"blue": BLUE} if blue else {})
        colours = {key: np.add(colour, shift) for key, colour in colours.items()}
        if shuffled:
            colours = {"red": colours["green"], "green": colours["blue"], "blue": colours["red"]}
        return name, photos(tmp_path / name, colours, 60, seed=shift)

    settings = {"size": 16, "passes": 5, "learning_rate": 0.02, "exam_share": 0.4}
    production.train(
        week("1", 0)[1], tmp_path / "m", network=tiny, settings=settings, trust_code=True
    )
    weeks = [
        week("2", 4),
        week("3", 8, blue=True),
        week("bad", 12, blue=True, shuffled=True),
        week("4", 13, blue=True),
        week("5", 16, blue=True),
    ]
    exam = Memory.load(tmp_path / "m" / "versions" / "0001" / "exam.safetensors")
    gone = [*(str(each.id) for each in exam.examples()), "2:red/0.png", "3:blue/7.png"][-5:]
    asked = photos(tmp_path / "asked", {"a": BLUE, "b": GREEN}, 4, seed=77)
    found = told(
        tmp_path / "m", weeks, asked, erased={"ids": gone}, gate=production.Gate(max_drop=0.1),
        trust_code=True,
    )  # fmt: skip
    assert found.answers == ["blue"] * 4 + ["green"] * 4


def test_code_runs_only_where_it_is_trusted_and_is_the_same(tmp_path, tiny):
    data = photos(tmp_path / "week1", {"red": RED, "green": GREEN})
    settings = {"size": 16, "passes": 1}
    with pytest.raises(EngramError, match="--trust-code, or trust_code=True"):
        production.train(data, tmp_path / "m", network=tiny, settings=settings)
    assert not (tmp_path / "m").exists()
    production.train(data, tmp_path / "m", network=tiny, settings=settings, trust_code=True)
    with pytest.raises(EngramError, match="--trust-code, or trust_code=True"):
        engram.load(tmp_path / "m")
    engram.load(tmp_path / "m", trust_code=True)
    helper = tmp_path / "m" / "versions" / "0001" / "code" / "sizes.py"
    helper.write_text("WIDTH = 8  # and what somebody has slipped in\n")
    with pytest.raises(EngramError, match="was changed since the version was made"):
        engram.load(tmp_path / "m", trust_code=True)


def test_tensors_and_batches_are_the_same_data(tmp_path):
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(400, 4, generator=draw)
    targets = (inputs[:, 0] > 0).long()
    batches = [(inputs[:150], targets[:150]), (inputs[150:], targets[150:])]
    save_file({"inputs": inputs, "targets": targets}, tmp_path / "t.safetensors")
    sources = [(inputs, targets), batches, f"tensors:{tmp_path / 't.safetensors'}"]
    states = []
    for number, source in enumerate(sources):
        folder = tmp_path / str(number)
        production.train(source, folder, settings={"passes": 2}, arguments=SMALL)
        states.append(engram.load(folder).network.state_dict())
    for other in states[1:]:
        assert all(torch.equal(other[name], states[0][name]) for name in other)
    model = engram.load(tmp_path / "0")
    assert model.predict(torch.tensor([[3.0, 0, 0, 0], [-3.0, 0, 0, 0]])).answers == ["1", "0"]
    assert production.update(tmp_path / "0", (inputs + 0.1, targets)).version == 2
    with pytest.raises(EngramError, match=r"reads tensors \[4\], not \[3\]"):
        model.predict(torch.zeros(2, 3))


def test_a_model_from_elsewhere_is_adopted_with_a_memory(tmp_path):
    file = tmp_path / "ours.py"
    file.write_text(
        "import torch\ndef build(shape, outputs):\n    return torch.nn.Linear(shape[0], outputs)\n"
    )
    weights = {"weight": torch.tensor([[-1.0, 0.0], [1.0, 0.0]]), "bias": torch.zeros(2)}
    save_file(weights, tmp_path / "w.safetensors")
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(800, 2, generator=draw)
    history = (inputs, (inputs[:, 0] > 0).long())
    with pytest.raises(EngramError, match="--trust-code"):
        production.adopt(f"{file}:build", tmp_path / "w.safetensors", history, tmp_path / "m")
    result = production.adopt(
        f"{file}:build", tmp_path / "w.safetensors", history, tmp_path / "m", trust_code=True
    )
    assert any("is not known" in each for each in result.notes)
    model = engram.load(tmp_path / "m", trust_code=True)
    assert torch.equal(model.network.weight, weights["weight"])
    update = production.update(tmp_path / "m", (inputs + 0.01, history[1]), trust_code=True)
    assert update.verdict == "accepted"
    save_file({"weight": torch.zeros(3, 2), "bias": torch.zeros(3)}, tmp_path / "w.safetensors")
    with pytest.raises(EngramError, match="do not fit the network"):
        production.adopt(
            f"{file}:build", tmp_path / "w.safetensors", history, tmp_path / "n", trust_code=True
        )


def test_a_network_is_exported_by_torch(churn, tmp_path):
    model = engram.load(churn)
    model.export(tmp_path / "model.pt2")
    inputs = torch.randn(7, *model.preprocessing.inputs.shape)
    program = torch.export.load(tmp_path / "model.pt2").module()
    assert torch.allclose(program(inputs), model.outputs(inputs), atol=1e-6)
    with pytest.raises(EngramError, match=r"export writes \.onnx or \.pt2"):
        model.export(tmp_path / "model.h5")


def test_a_network_is_exported_to_onnx(churn, tmp_path):
    onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
    pytest.importorskip("onnxscript", reason="the extra onnx is not installed")
    engram.load(churn).export(tmp_path / "model.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "model.onnx"))


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("sales.csv", "give it as table:FILE"),
        ("table:gone.csv", "must be followed by a file"),
        (torch.zeros(3, 4), "Every example must have a target"),
        ((torch.zeros(3, 4), torch.zeros(2)), "There are 3 inputs"),
        ((torch.full((3, 4), torch.nan), torch.zeros(3)), "finite real numbers"),
        ([], "not a single batch"),
        ({"a": [1, 2], "b": [1]}, "must be of one length"),
        (7, "give table:FILE, folder:FOLDER"),
    ],
)
def test_what_is_no_data_is_refused(tmp_path, data, sentence):
    with pytest.raises(EngramError, match=sentence):
        production.train(data, tmp_path / "m", settings={"target": "a"})
