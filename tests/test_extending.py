"""The pages of docs/extending: their code is a third party's, and works followed word for word."""

import os
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.optimize import minimize_scalar

import engram
from engram import plugins, testing
from engram.lab import protocol
from engram.lab.benchmarks import Batch
from engram.lab.methods import Setup
from engram.memory import Memory
from engram.testing import Practice

ROOT = Path(__file__).parents[1]
PAGES = {page.stem: page for page in sorted((ROOT / "docs" / "extending").glob("[a-z]*.md"))}
PART = re.compile(r"\*\*`(\S+)`\*\*\n\n```python\n(.*?)\n```|^```sh\n(.*?)\n```", re.M | re.S)
CLASSES = 200


def parts(page):
    """Yield the files and the commands of a page in their order: (name, text) or (None, lines)."""
    for name, text, commands in PART.findall(PAGES[page].read_text("utf-8")):
        yield (name, f"{text}\n") if name else (None, commands.splitlines())


def code(page):
    """Return the name and the text of the page's own file, which is the first."""
    return next(part for part in parts(page) if part[0])


pytestmark = pytest.mark.usefixtures("plugins_apart")


@pytest.fixture
def load(tmp_path):
    """Return the module of a page's own file, loaded as a plugin."""

    def loaded(page):
        name, text = code(page)
        (tmp_path / name).write_text(text)
        plugins.use_files([tmp_path / name])
        return plugins.load_file(tmp_path / name)

    return loaded


def make_tiny_imagenet(folder):
    """Write images as the official archive has them: 200 classes, few images of each."""
    draw, root = np.random.default_rng(0), folder / "tiny-imagenet-200"
    names = [f"n{place:08d}" for place in range(CLASSES)]
    (root / "val" / "images").mkdir(parents=True)
    (root / "wnids.txt").write_text("".join(f"{name}\n" for name in reversed(names)))
    lines = []
    for place, name in enumerate(names):
        mine = root / "train" / name / "images"
        mine.mkdir(parents=True)
        files = [mine / f"{name}_{number}.JPEG" for number in range(3)]
        for file in [*files, root / "val" / "images" / f"val_{place}.JPEG"]:
            pixels = draw.integers(0, 60, (64, 64, 3)) + place % 180
            Image.fromarray(pixels.astype(np.uint8)).save(file)
        lines.append(f"val_{place}.JPEG\t{name}\t0\t0\t62\t62\n")
    (root / "val" / "val_annotations.txt").write_text("".join(lines))


def called(words, folder, **more):
    """Run a command of a page in a folder, in a process of its own."""
    given = dict(word.split("=") for word in words if re.match(r"[A-Z_]+=", word))
    program, *rest = words[len(given) :]
    start = {"engram": [sys.executable, "-m", "engram"], "python": [sys.executable]}[program]
    paths = [str(Path(engram.__file__).parents[1]), *more.pop("paths", [])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **given}
    environment["XDG_CACHE_HOME"] = str(folder / "cache")
    del environment[plugins.FILES]
    done = subprocess.run(
        [*start, *rest], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_a_page_works_when_it_is_followed_word_for_word(page, tmp_path):
    if page == "benchmark":
        make_tiny_imagenet(tmp_path / "data")
    told = []
    for name, text in parts(page):
        if name:
            (tmp_path / name).write_text(text)
        else:
            told += [called(shlex.split(line), tmp_path) for line in text]
    table = re.findall(r"(?m)^\| ([a-z, ]+) \| (?!-)", PAGES[page].read_text("utf-8"))
    promised = [each for cell in table for each in cell.split(", ")]
    (checks,) = [each for each in told if each.rstrip().endswith("']")]
    done = re.findall(r"'(\w[\w ]*)'", checks.splitlines()[-1])
    assert page == "method" or set(done) <= set(promised)


@pytest.mark.slow
def test_a_page_s_file_is_installed_by_pip_and_found_by_its_entry_point(tmp_path):
    name, text = code("rule")
    wheel, info = tmp_path / "engram_cagrad-1.5-py3-none-any.whl", "engram_cagrad-1.5.dist-info"
    files = {
        name: text,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: engram-cagrad\nVersion: 1.5\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[engram.rules]\ncagrad = cagrad\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{each},,\n" for each in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(wheel, "w") as archive:
        for each, content in files.items():
            archive.writestr(each, content)
    target = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", str(target), str(wheel)], check=True, capture_output=True)
    told = called(["engram", "list", "rules"], tmp_path, paths=[str(target)])
    assert re.search(r"cagrad +engram-cagrad 1.5\n", told)
    sizes = ["--tasks", "2", "--examples", "20", "--seeds", "1", "--device", "cpu"]
    run = ["engram", "run", "permuted-mnist", "cagrad", *sizes]
    assert " cagrad " in called(run, tmp_path, paths=[str(target)])
    export = ["engram", "results", "--export", "rows.jsonl"]
    assert "rules/cagrad=engram-cagrad-1.5" in called(export, tmp_path)
    rows = (tmp_path / "rows.jsonl").read_text()
    assert '"plugins":{"rules/cagrad":"engram-cagrad 1.5"}' in rows


def least_helped(direction, rows):
    return min(rows @ direction)


@pytest.mark.parametrize("c", [0.0, 0.1, 0.4, 0.9, 2.0])
def test_cagrad_helps_the_row_that_is_helped_least_as_well_as_can_be(load, c):
    rule, draw = load("rule").CAGrad(c), np.random.default_rng(0)
    for _ in range(100):
        rows = draw.normal(size=(2, 4)) * 10 ** draw.uniform(-2, 2, (2, 1))
        weights = rule(torch.ones(2, dtype=torch.float64), torch.from_numpy(rows @ rows.T)).numpy()
        ours, mean = weights @ rows, rows.mean(0)
        radius = c * np.linalg.norm(mean)

        def dual(w, rows=rows, mean=mean, radius=radius):
            mixed = w * rows[0] + (1 - w) * rows[1]
            return mixed @ mean + radius * np.linalg.norm(mixed)

        found = minimize_scalar(dual, bounds=(0, 1), method="bounded", options={"xatol": 1e-12})
        best = min(found.fun, dual(0.0), dual(1.0))  # by strong duality what the least has of it
        assert np.linalg.norm(ours - mean) <= radius * (1 + 1e-9) + 1e-12
        assert least_helped(ours, rows) == pytest.approx(best, rel=1e-5, abs=1e-6 * (rows**2).max())


def test_cagrad_takes_rows_that_are_equal_opposed_or_absent(load):
    rule = load("rule").CAGrad(0.5)
    for gram in ([[1, 1], [1, 1]], [[1, -1], [-1, 1]], [[1, 0], [0, 0]], [[0, 0], [0, 0]]):
        assert rule(torch.ones(2), torch.tensor(gram, dtype=torch.float32)).isfinite().all()
    assert testing.check_rule("cagrad")[-1] == "scale"


def test_the_diverse_policy_keeps_what_brute_force_keeps(load):
    policy = load("policy").Diverse(per_class=4, numbers=3)
    inputs = torch.randn(40, 5, generator=torch.Generator().manual_seed(1))
    memory = Memory(policy)
    memory.add((inputs, torch.zeros(40, dtype=torch.int64)), tasks=0)
    drawn = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    points = (inputs @ drawn).double()
    kept = []
    for place in range(40):
        kept.append(place)
        if len(kept) > 4:
            pairs = [(one, other) for one in range(5) for other in range(one)]
            apart = [torch.dist(points[kept[one]], points[kept[other]]) for one, other in pairs]
            nearest = pairs[min(range(10), key=apart.__getitem__)]
            last = max(kept[place] for place in nearest)
            place_of_last = kept.index(last)
            candidate = kept.pop()
            if last != candidate:
                kept[place_of_last] = candidate
    assert {each.id for each in memory.examples()} == set(kept)
    assert "undone" in testing.check_policy("diverse")


@pytest.fixture
def derpp(load):
    made = load("method")
    stream = Practice((0, 1), "cpu", torch.float64)
    network = stream.network()
    parameters = torch.stack([stream.initialise(network, seed) for seed in (0, 1)]).double()
    settings = made.DerppSettings(memory_per_class=2, batch_size=4, reference_batch=3, alpha=0.7)
    return made.Derpp(Setup(network, parameters, (0, 1), stream), settings), stream


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_the_gradient_of_der_is_that_of_its_loss(derpp, weighted, masked):
    method, _ = derpp
    draw = torch.Generator().manual_seed(0)
    logits, before = torch.randn(2, 2, 6, 3, generator=draw, dtype=torch.float64)
    labels = torch.randint(3, (2, 6), generator=draw)
    outputs = torch.zeros(2, 6, 3, dtype=torch.bool).scatter(-1, labels.unsqueeze(-1), True)
    outputs[..., 0] = True
    shares = torch.tensor([0.25] * 4 + [0.0] * 2, dtype=torch.float64).expand(2, 6)
    batch = Batch(logits, labels, shares if weighted else None, 1, outputs if masked else None)
    losses, gradient = method._to_remember(before)(logits.clone(), batch)

    asked = logits.clone().requires_grad_()
    inside = outputs if masked else torch.ones_like(outputs)
    own = asked.masked_fill(~inside, -torch.inf).log_softmax(-1)
    entropy = -own.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    distance = ((asked - before).square() * inside).mean(-1)
    share = shares if weighted else torch.full((2, 6), 1 / 6, dtype=torch.float64)
    wanted = ((0.7 * distance + 0.5 * entropy) * share).sum(-1)
    with torch.enable_grad():
        (slope,) = torch.autograd.grad(wanted.sum(), asked)
    torch.testing.assert_close(losses.squeeze(-1), wanted.detach())
    torch.testing.assert_close(gradient, slope)


@torch.no_grad()
def test_der_remembers_what_the_network_said_when_it_learned(derpp):
    method, stream = derpp
    examples = method.stage_examples(stream.deal(0))
    method.begin_task(0, examples.labels.clone())
    said = torch.zeros(2, 14, 3, dtype=torch.float64)
    for step in range(4):
        part = slice(4 * step, 4 * step + 4)
        stored, labels = examples.inputs[:, part], examples.labels[:, part]
        batch = stream.batch(stored, labels)
        said[:, part] = method.network.predict(
            method.parameters, batch.inputs, None, method.buffers
        )
        found = method.bank.read(step, "inputs", "logits")
        if found is not None:
            (inputs, logits), _, _ = found
            for run in range(2):
                for example, before in zip(inputs[run], logits[run], strict=True):
                    (place,) = (examples.inputs[run] == example).all(-1).nonzero()
                    torch.testing.assert_close(before, said[run, place[0]])
        method.observe(step, stored, batch)
    assert "resumed" in testing.check_method("der-pp", memory_per_class=2, reference_batch=3)


def test_split_tiny_imagenet_deals_out_the_official_folder(load, tmp_path, monkeypatch):
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = load("benchmark")
    with pytest.raises(engram.errors.EngramError, match="not there: unpack the official archive"):
        made.load()
    make_tiny_imagenet(tmp_path)
    images = made.load()
    assert images.train_images.shape == (3 * CLASSES, 3, 64, 64)
    stream = made.SplitTinyImageNet([0], tasks=17, examples=30)
    dealt = [set(stream.train(task).labels[0].tolist()) for task in range(17)]
    assert sorted(label for task in dealt for label in task) == list(range(30, 200))
    assert testing.check_benchmark("split-tiny-imagenet")[-1] == "tuning"


def test_the_vision_transformer_is_a_network(load):
    load("network")
    done = testing.check_network("vit", (3, 16, 16), 4, depth=1, width=16)
    assert done == testing.check_network("mlp", (8,), 3)


def test_the_page_s_vision_transformer_is_the_one_that_whole_runs_were_made_with():
    assert code("network") == ("vit.py", (ROOT / "examples" / "vit.py").read_text("utf-8"))


class Killed(Exception):
    pass


class Dying(protocol.Checkpoint):
    """Saves after every step, and dies after a few times."""

    lives = 3

    def save(self, *given):
        super().save(*given)
        self.lives -= 1
        if not self.lives:
            raise Killed


@pytest.mark.parametrize("memory", ["reservoir", "diverse,numbers=4"])
def test_a_run_with_plugins_that_is_killed_and_goes_on_ends_with_the_same_bits(
    load, tmp_path, memory
):
    load("method"), load("policy")
    sizes = {"memory_per_class": "2", "reference_batch": "5", "curve_images": "100"}
    given = {"memory": memory, **sizes}
    spec = protocol.specify("permuted-mnist", "der-pp", tasks=2, examples=60, overrides=given)
    (whole,) = protocol.run(spec, seeds=[0])
    resumed, deaths = None, 0
    while resumed is None:
        try:
            place = Dying(tmp_path / "run.safetensors", every=0.0)
            (resumed,) = protocol.run(spec, seeds=[0], checkpoint=place)
        except Killed:
            deaths += 1
    assert deaths > 2
    assert (resumed.accuracy, resumed.curve) == (whole.accuracy, whole.curve)
