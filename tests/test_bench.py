"""What is measured has the shape that tables and files want; no test says how fast anything is."""

import sys
from functools import partial

import numpy as np
import pytest
import torch

from engram.app.report import speed_markdown
from engram.lab import bench
from engram.lab.bench import gpu, networks, own_loop, products, sessions, timing

SMALL = sessions.Noise("split-cifar", 16, 100, per_class=3, earlier=10, overrides={})


@pytest.fixture
def on_a_cpu(monkeypatch):
    """Let what is measured on a GPU run on a CPU, with two tasks and a clock of its own."""
    taken = []

    def microseconds(take, steps, **_):
        for step in range(min(steps, 3)):
            take(step, steps)
        taken.append(steps)
        return timing.Timing(10.0 * len(taken), 5.0, 100.0)

    monkeypatch.setattr(gpu, "microseconds", microseconds)
    monkeypatch.setattr(gpu, "permuted", partial(sessions.permuted, tasks=2))
    monkeypatch.setattr(gpu, "on_noise", partial(sessions.on_noise, tasks=2))
    monkeypatch.setattr(gpu, "EARLIER", 20)
    monkeypatch.setattr(gpu, "EXAMPLES", 50)
    monkeypatch.setattr(gpu, "captured_products", lambda *_: lambda step, _: step + 1)
    monkeypatch.setattr(gpu, "_IMAGES", ((SMALL, (1, 2), {"tf32": 7.0}),))
    monkeypatch.setattr(gpu, "CIFAR", SMALL)
    monkeypatch.setattr(gpu, "_DETERMINISM_RUNS", 2)
    monkeypatch.setattr(gpu, "_in_a_fresh_process", gpu._steps_with_switch)
    return taken


def shows_all_of(name, rows):
    """Whether every cell of the table is filled, but for bounds that are not set."""
    header, _, *lines = speed_markdown(name, rows).splitlines()
    columns = [cell.strip() for cell in header.strip("|").split("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return len(lines) == len(rows) > 0 and all(
        cell != "–" or column in ("at most", "at least")
        for line in cells
        for column, cell in zip(columns, line, strict=True)
    )


def test_candidates_take_turns_and_the_first_round_is_not_counted():
    order = []

    def candidate(name):
        def turn():
            order.append(name)
            return float(len(order))

        return turn

    times = bench.take_turns({"a": candidate("a"), "b": candidate("b")}, blocks=2, rounds=2)
    assert order == ["a", "b"] * 5
    assert times == {"a": [[3.0, 5.0], [7.0, 9.0]], "b": [[4.0, 6.0], [8.0, 10.0]]}


def test_slow_candidates_have_every_tenth_turn():
    turns = {"fast": lambda: 1.0, "slow": lambda: 2.0}
    times = bench.take_turns(turns, blocks=1, rounds=20, seldom=["slow"])
    assert [len(times[name][0]) for name in turns] == [20, 2]


def test_ratios_are_of_blocks():
    times = {"ours": [[1.0, 1.0, 9.0], [2.0]], "theirs": [[2.0], [8.0, 6.0, 9.0]]}
    assert bench.ratio(times, "theirs", "ours") == {"ratio": 3.0, "lowest": 2.0, "highest": 4.0}
    assert bench.median(times, "ours") == 1.5


def test_a_turn_is_told_by_the_step():
    steps = []
    turn = bench.timed(lambda: steps.append(sum(range(20_000))), repeats=10)
    assert 0 < turn() < 1
    assert len(steps) == 10


def test_steps_of_the_library_have_their_floors():
    rows = bench.steps(blocks=1, rounds=1)
    bounded = [row["candidate"] for row in rows if row["bound"]]
    assert bounded == ["MEGA-II", "A-GEM", "MEGA-I", "memory", "GEM"]
    assert all(row["ratio"] > 0 for row in rows)
    assert shows_all_of("steps", rows)


def test_every_method_stands_beside_van_and_mega():
    rows = bench.methods(["ewc", "a-gem"], blocks=1, rounds=2)
    assert {row["method"] for row in rows} == {"van", "mega-ii", "ewc", "a-gem"}
    beside = {row["method"]: (row["ratio"], row["beside_mega"]) for row in rows}
    assert beside["van"][0] == beside["mega-ii"][1] == 1.0
    assert {row["method"] for row in rows if row["bound"]} == {"ewc"}
    assert shows_all_of("methods", rows)


def test_a_loop_of_ones_own_has_its_floors_and_its_memory(monkeypatch):
    monkeypatch.setattr(own_loop, "_SECONDS", 0)
    tiny = own_loop.Workload(
        "transformer",
        lambda: own_loop.Transformer(11, 4, 8, 2, 1),
        own_loop.texts(11, 4),
        (1, 2),
        3,
        1.1,
        gem=True,
    )
    (rows,) = bench.loop("cpu", [tiny], blocks=1)
    assert {row["model"] for row in rows} == {"transformer, 1 + 2"}
    ways = {(row["interface"], row["method"]) for row in rows}
    assert len(ways) == len(rows)
    for interface in ("GradientMixer", "engram.backward", "Learner"):
        assert {(interface, each) for each in ("MEGA-I", "MEGA-II", "A-GEM")} <= ways
    by_name = {(row["interface"], row["method"]): row for row in rows}
    floor = by_name["plain", "two passes"]
    assert floor["ratio"] == 1
    mixed = by_name["GradientMixer", "MEGA-II"]
    assert (mixed["beside"], mixed["bound"]) == ("two passes", 1.1)
    gradient = 4 * sum(each.numel() for each in tiny.build().parameters()) / 2**20
    assert mixed["mebibytes_bound"] == pytest.approx(1.02 * floor["mebibytes"] + gradient)
    assert by_name["GradientMixer", "GEM, 8 rows"]["beside"] == "9 passes"
    assert shows_all_of("loop", rows)


@pytest.fixture
def _torchjd(tmp_path, monkeypatch):
    """A package of that name with what is called of it, which adds gradients up."""
    package = tmp_path / "torchjd"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "aggregation.py").write_text("class UPGrad: ...\nclass DualProj: ...\n")
    (package / "autojac.py").write_text(
        "def backward(losses, *, inputs, parallel_chunk_size):\n"
        "    for loss in losses:\n"
        "        loss.backward(inputs=inputs)\n"
        "def jac_to_grad(tensors, aggregator, *, optimize_gramian_computation): ...\n"
    )
    facts = tmp_path / "torchjd-1.2.3.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: torchjd\nVersion: 1.2.3\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("torchjd", "torchjd.autojac", "torchjd.aggregation"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield
    for name in ("torchjd", "torchjd.autojac", "torchjd.aggregation"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("_torchjd")
def test_torchjd_stands_beside_where_it_is_installed(monkeypatch):
    monkeypatch.setattr(own_loop, "_SECONDS", 0)
    tiny = own_loop.Workload(
        "layer", lambda: torch.nn.Linear(784, 10), own_loop.vectors, (2, 3), 3, 1.1
    )
    (rows,) = bench.loop("cpu", [tiny], blocks=1)
    theirs = [row for row in rows if row["interface"] == "TorchJD"]
    assert [row["method"] for row in theirs] == ["UPGrad", "DualProj"]
    assert {(row["beside"], row["bound"]) for row in theirs} == {("two passes", None)}
    assert bench.others(rows) == {"torchjd": "1.2.3"}
    assert bench.others(rows[:3]) == {}


def test_a_way_that_this_machine_has_not_is_left_out_and_told(monkeypatch):
    monkeypatch.setattr(own_loop, "_SECONDS", 0)

    def fail(*_):
        raise RuntimeError("There is no such kernel.\nMore of it.")

    monkeypatch.setattr(own_loop._Loop, "_backward", fail)
    tiny = own_loop.Workload(
        "layer", lambda: torch.nn.Linear(784, 10), own_loop.vectors, (2, 3), 3, 1.1
    )
    with pytest.warns(
        UserWarning, match="engram.backward: .* is left out: There is no such kernel.$"
    ):
        (rows,) = bench.loop("cpu", [tiny], blocks=1)
    assert {row["interface"] for row in rows} == {"plain", "GradientMixer", "Learner"}
    monkeypatch.setattr(own_loop._Loop, "_plain", fail)  # beside it all others stand
    with pytest.raises(RuntimeError, match="no such kernel"):
        next(bench.loop("cpu", [tiny], blocks=1))


def test_steps_with_a_penalty_stand_beside_plain_ones(monkeypatch):
    monkeypatch.setattr(own_loop, "_SECONDS", 0)
    tiny = own_loop.Workload(
        "layer", lambda: torch.nn.Linear(784, 10), own_loop.vectors, (2, 0), 3, 1.35
    )
    (rows,) = bench.penalties("cpu", [tiny], blocks=1)
    assert [row["method"] for row in rows] == ["one pass", "EWC", "PI", "MAS", "RWALK"]
    assert {row["model"] for row in rows} == {"layer, 2"}
    assert [row["bound"] for row in rows] == [None, *[1.35] * 4]
    assert shows_all_of("penalties", rows)


@pytest.mark.parametrize("number", range(3))
def test_the_models_of_a_loop_take_their_batches(number):
    """Those of the CPU; GPT-2 has its published number of weights."""
    workload = own_loop.workloads("cpu")[number]
    inputs, wanted = workload.draw(2)
    outputs = workload.build()(inputs)
    assert torch.nn.functional.cross_entropy(outputs, wanted).isfinite()
    with torch.device("meta"):
        sizes = [sum(p.numel() for p in w.build().parameters()) for w in own_loop.workloads("cuda")]
    assert sizes == [269_322, 11_689_512, 124_439_808]


def test_stacks_of_runs(on_a_cpu):
    rows = bench.stacks("cpu", runs=(1, 2), examples=100)
    assert {row["runs"] for row in rows} == {1, 2}
    assert all(row["each"] == row["microseconds"] / row["runs"] for row in rows)
    assert all(row["share"] == row["products"] / row["microseconds"] for row in rows)
    assert on_a_cpu == [10] * 2 * len(rows)  # the steps of the last task, and as many products
    assert shows_all_of("stacks", rows)


def test_all_trials_of_a_search_stand_beside_one_after_another(on_a_cpu):
    rows = bench.searches("cpu", ["mega-i", "prog-nn"], seeds=2, examples=100)
    assert [(row["method"], row["trials"], row["runs"]) for row in rows] == [
        ("mega-i", 5, 10),
        ("prog-nn", 8, 16),
    ]
    assert on_a_cpu == [10] * 4
    # By the clock of the test a trial alone takes 10 for both of its seeds, and all trials take 20.
    assert (rows[0]["alone"], rows[0]["each"], rows[0]["ratio"]) == (5.0, 2.0, 2.5)
    assert shows_all_of("searches", rows)


def test_steps_to_a_replay_are_measured_one_number_after_the_other(on_a_cpu):
    rows = bench.replays("cpu", (1, 2), runs=2, examples=80)
    assert [(row["method"], row["together"]) for row in rows] == [
        *(("van", 1), ("van", 2)),
        *(("mega-ii", 1), ("mega-ii", 2)),
    ]
    assert [row["chosen"] for row in rows] == [None, "yes", None, "yes"]
    assert all(row["recording"] > 0 for row in rows)
    assert on_a_cpu == [5, 4, 5, 4]  # steps that are left


def test_captured_methods_stand_beside_mega(on_a_cpu):
    rows = bench.captured("cpu", ["van", "mer"], runs=2, examples=50)
    assert [(row["method"], row["ratio"]) for row in rows] == [("mega-ii", 1.0), ("van", 2.0)]
    assert on_a_cpu == [5, 5]  # no step of MER can be captured
    assert shows_all_of("captured", rows)


def test_residual_networks_learn_noise(on_a_cpu):
    rows = bench.images("cpu")
    assert [(row["runs"], row["precision"]) for row in rows] == [(1, "tf32"), (2, "tf32")]
    assert on_a_cpu == [2, 2]
    assert shows_all_of("images", rows)


def test_the_price_of_determinism(on_a_cpu):
    before = torch.get_deterministic_debug_mode()
    rows = bench.determinism("cpu")
    assert [(row["benchmark"], row["ratio"]) for row in rows] == [
        ("permuted-mnist", 3.0),
        ("split-cifar", 2.0),
    ]
    assert len(on_a_cpu) == 4
    assert torch.get_deterministic_debug_mode() == before
    assert shows_all_of("determinism", rows)


@pytest.mark.parametrize("kind", [sessions.CIFAR, sessions.CUB], ids=lambda kind: kind.benchmark)
def test_noise_has_every_class_equally_often(kind):
    images = sessions.pictures(kind._replace(side=2))
    assert images.train_images.shape == (kind.classes * kind.per_class, 3, 2, 2)
    assert images.train_images.dtype == np.uint8
    assert (np.bincount(images.train_labels) == kind.per_class).all()
    assert images.test_labels.tolist() == list(range(kind.classes))


def test_the_products_alone_are_those_of_the_passes():
    """Of a pass by hand: forward, the weights' gradients, and the errors of all but the inputs."""
    torch.manual_seed(0)
    alone = products._Products((5, 4, 3), 7, 2, "cpu")
    inputs, error = alone._inputs[0].clone(), alone._errors[2].clone()
    first, second = alone._weights
    alone.multiply()
    hidden = inputs @ first
    torch.testing.assert_close(alone._inputs[2], hidden @ second)
    torch.testing.assert_close(alone._gradients[1], hidden.mT @ error)
    torch.testing.assert_close(alone._gradients[0], inputs.mT @ (error @ second.mT))


def test_too_few_steps_are_refused():
    with pytest.raises(ValueError, match="too few"):
        timing.microseconds(lambda step, _: step + 1, 25)


def test_modules_take_turns_with_the_networks_by_hand(monkeypatch):
    monkeypatch.setattr(networks, "CIFAR", SMALL)
    kinds = tuple(kind._replace(rounds=1) for kind in networks.KINDS)
    rows = networks.on_cpu(kinds, blocks=1)
    assert [row["network"].split(",")[0] for row in rows] == ["MLP", "reduced ResNet-18"]
    assert all(row["ratio"] > 0 for row in rows)
    assert shows_all_of("networks", rows)


def test_modules_are_measured_by_a_gpus_clock(on_a_cpu, monkeypatch):
    monkeypatch.setattr(networks, "CIFAR", SMALL)
    monkeypatch.setattr(networks, "EARLIER", 20)
    monkeypatch.setattr(networks, "microseconds", gpu.microseconds)
    for name in ("permuted", "on_noise"):
        kind = getattr(sessions, name)
        monkeypatch.setattr(
            networks, name, lambda *given, kind=kind, **more: kind(*given, **more | {"tasks": 2})
        )
    rows = networks.on_gpu("cpu")
    assert [row["bound"] for row in rows] == [None, 1.8]
    assert len(on_a_cpu) == 12
    assert shows_all_of("networks", rows)
