"""Who gets kernels of Triton, and that they make the same steps; they are interpreted here."""

import pytest
import torch

from engram import kernels
from engram.kernels import triton_works
from engram.lab.engine import Batch, Rows, cross_entropy
from engram.lab.engine import rows as engine_rows
from engram.lab.networks import MLP, mlp, stacked
from engram.rules import GEM, MEGA2


@pytest.fixture(scope="module")
def loss_kernels(interpreted):
    return interpreted("engram.kernels.rows")


def test_more_classes_than_a_program_holds_are_left_to_torch(loss_kernels, monkeypatch):
    monkeypatch.setattr(engine_rows, "triton_works", lambda _: True)
    monkeypatch.setattr(loss_kernels, "entropies", lambda *_: "the kernel's")
    told = []
    for classes in (4096, 4097):
        logits, labels = torch.randn(1, 3, classes), torch.randint(classes, (1, 3))
        told.append(cross_entropy(logits, Batch(logits, labels)))
    assert told[0] == "the kernel's"
    expected = torch.nn.functional.cross_entropy(logits[0], labels[0])
    torch.testing.assert_close(told[1][0].squeeze(), expected)


@pytest.mark.parametrize(("rule", "groups"), [(MEGA2(), 1), (GEM(), 2)], ids=repr)
@pytest.mark.usefixtures("interpreted")
def test_steps_by_kernels_are_steps(rule, groups, monkeypatch):
    network, ends = MLP((7, 40, 5)), []
    source = torch.Generator().manual_seed(0)
    drawn = [0.3 * torch.randn(network.size, generator=source) for _ in range(2)]
    given = [
        Batch(
            torch.rand(2, size, 7, generator=source),
            torch.randint(5, (2, size), generator=source),
            groups=parts,
        )
        for size, parts in ((3, 1), (20, groups))
    ]
    for there in (False, True):
        for module in (mlp, engine_rows):
            monkeypatch.setattr(module, "triton_works", lambda _, there=there: there)
        rows = Rows(network, stacked(drawn, "cpu"))
        mixes = [rows.step(rule, 0.1, *given) for _ in range(3)]
        ends.append([rows.parameters, *(mix.losses for mix in mixes)])
    for plain, ours in zip(*ends, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)


def test_without_a_gpu_nobody_asks_whether_they_work(monkeypatch):
    monkeypatch.setattr(kernels, "_works", lambda _: pytest.fail("tried"))
    assert not triton_works(torch.ones(1))
    assert not triton_works(torch.ones(1, device="meta"))


def test_whatever_goes_wrong_at_the_trial_there_is_a_way_without(monkeypatch):
    def fail(*shape, **options):
        raise RuntimeError(f"no room for {shape} with {options}")

    monkeypatch.setattr(torch, "ones", fail)
    assert not kernels._works.__wrapped__(torch.device("cpu"))


def test_asked_for_first_without_gradients_the_trial_goes_well_all_the_same(monkeypatch):
    started = []
    monkeypatch.setattr(torch.autograd, "grad", lambda output, _: started.append(output))
    with torch.inference_mode():
        kernels._start_autograd(torch.device("cpu"))
    assert started[0].requires_grad
