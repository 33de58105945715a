"""The learner: reference passes, current pass, rule, step, memory, in this order."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from engram import Learner
from engram.errors import EngramError
from engram.memory import ClassRing, ClassSample, Fifo, Memory, Reservoir
from engram.rules import AGEM, GEM, MEGA1, MEGA2, Current, Equal
from unwaited import scattered, unwaited

pytestmark = pytest.mark.numerical

RULES = [Current(), Equal(), AGEM(), MEGA1(), MEGA2(), GEM(), GEM(sampled=True)]
POLICIES = [ClassRing(4), ClassSample(4), Reservoir(20), Fifo(20)]


def name(value):
    return type(value).__name__


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()


def batch(seed, count=6):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 5, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(3, (count,), generator=generator)


def build(rule, policy, **options):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    return Learner(model, optimizer, rule, Memory(policy), **options)


def train(learner, tasks=3, steps=4, first=0):
    for task in range(first, first + tasks):
        for step in range(steps):
            mix = learner.observe(*batch(100 * task + step), task=task)
        learner.end_task()
    return mix


def weights(learner):
    return torch.cat([parameter.detach().flatten() for parameter in learner.model.parameters()])


def update_by_hand(learner, current, references):
    """Return the rule's update from whole gradient vectors."""
    losses = [cross_entropy(learner.model(x), y) for x, y in [current, *references]]
    parameters = list(learner.model.parameters())
    rows = torch.stack(
        [
            torch.cat([part.flatten() for part in torch.autograd.grad(loss, parameters)])
            for loss in losses
        ]
    )
    return learner.rule(torch.stack(losses).detach(), rows @ rows.T) @ rows


@pytest.mark.parametrize("rule", RULES, ids=name)
@pytest.mark.parametrize("policy", POLICIES, ids=name)
def test_a_step_is_the_rules_update_on_a_sample_of_the_memory(rule, policy):
    learner = build(rule, policy, reference_batch=8)
    train(learner)
    twin = copy.deepcopy(learner.memory)
    if rule.reference == "per task":
        drawn = twin.sample(8, by_task=True) if rule.draws_by_task else twin.last(8)
        references = [sample.batch for sample in drawn.values()]
    else:
        references = [twin.sample(8).batch] if rule.reference == "pooled" else []
    current = batch(7)
    expected = update_by_hand(learner, current, references)
    mix = learner.observe(*current, task=3)
    found = torch.cat([parameter.grad.flatten() for parameter in learner.model.parameters()])
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-12)
    assert mix.losses.shape == (1 + len(references),)
    twin.add(current, tasks=3)
    assert list(learner.memory.examples()) == list(twin.examples())


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_the_first_task_is_plain_training_where_the_memory_waits_for_its_end(rule):
    learner, plain = build(rule, ClassRing(4)), network()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.5)
    for step in range(4):
        assert learner.observe(*batch(step), task=0).weights.tolist() == [1]
        inputs, classes = batch(step)
        optimizer.zero_grad()
        cross_entropy(plain(inputs), classes).backward()
        optimizer.step()
    assert torch.equal(weights(learner), torch.cat([p.flatten() for p in plain.parameters()]))


@pytest.mark.parametrize("rule", [Equal(), MEGA2()], ids=name)
def test_without_tasks_mixing_starts_with_the_second_batch(rule):
    learner = build(rule, Reservoir(20))
    assert [len(learner.observe(*batch(step)).weights) for step in range(3)] == [1, 2, 2]


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_the_memory_is_looked_at_first_and_written_last(rule):
    seen = []

    def loss(model, given, tasks):
        seen.append((len(learner.memory), given[0].shape[0], set(tasks.tolist())))
        return cross_entropy(model(given[0]), given[1])

    learner = build(rule, Fifo(100), loss=loss, reference_batch=4)
    learner.observe(*batch(0), task=0)
    learner.observe(*batch(1), task=1)
    learner.observe(*batch(2), task=2)
    past = {"none": [], "pooled": [4], "per task": [4, 4]}[rule.reference]
    assert [size for held, size, _ in seen if held == 12] == [*past, 6]
    assert all(2 not in tasks for _, size, tasks in seen if size == 4)
    assert seen[-1][2] == {2}
    assert len(learner.memory) == 18


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_freezing_a_parameter_stops_it_at_once(rule):
    """No stale gradient is left for the optimiser to follow."""
    learner = build(rule, Fifo(20))
    learner.optimizer = torch.optim.SGD(learner.model.parameters(), lr=0.1)
    train(learner, tasks=1)
    learner.model[0].requires_grad_(False)
    before = learner.model[0].weight.clone()
    train(learner, tasks=1, first=1)
    assert torch.equal(learner.model[0].weight, before)


def test_a_rule_that_needs_no_reference_does_not_sample():
    learner = build(Current(), Reservoir(20))
    learner.memory.references = None
    learner.observe(*batch(0))
    learner.observe(*batch(1))


def test_batches_may_be_dicts_and_the_loss_tells_what_is_compared():
    compared = []

    def loss(model, given, tasks):
        assert tasks is None
        plain = cross_entropy(model(given["x"]), given["y"])
        compared.append(plain.item())
        return plain + sum(p.square().sum() for p in model.parameters()), plain

    learner = build(MEGA2(), Reservoir(20), loss=loss)
    for step in range(3):
        inputs, classes = batch(step)
        mix = learner.observe({"x": inputs, "y": classes}, ids=[f"{step}-{i}" for i in range(6)])
    assert mix.losses.tolist() == compared[:-3:-1]  # the current loss is row 0, and came last
    learner.memory.erase(ids=["0-0"])
    assert len(learner.memory) == 17


def test_labels_and_tags_reach_the_memory():
    learner = build(Equal(), ClassRing(2), loss=lambda model, given, _: model(given["x"]).mean())
    labels = torch.tensor([0, 0, 0, 1, 1, 2])
    learner.observe({"x": batch(0)[0]}, task=4, labels=labels, tags={"site": "north"})
    held = list(learner.memory.examples())
    assert sorted(example.label for example in held) == [0, 0, 1, 1, 2]
    assert all(example.task == 4 and example.tags == {"site": "north"} for example in held)


@pytest.mark.parametrize("rule", RULES, ids=name)
@pytest.mark.parametrize("policy", POLICIES, ids=name)
def test_a_learner_resumes_bit_for_bit(rule, policy):
    learner, resumed = build(rule, policy), build(rule, policy)
    train(learner, tasks=2)
    learner.observe(*batch(999), task=2)
    resumed.load_state_dict(copy.deepcopy(learner.state_dict()))
    train(learner, tasks=2, first=2)
    train(resumed, tasks=2, first=2)
    assert torch.equal(weights(learner), weights(resumed))


@pytest.mark.parametrize("rule", [MEGA1(), MEGA2()], ids=name)
def test_a_step_that_breaks_off_leaves_nothing_behind(rule):
    """After an error in the user's loss, the next step is as if the broken one had not begun."""
    broken, whole = [], build(rule, Fifo(100))

    def loss(model, given, _):
        if broken and len(given[0]) == 6:
            raise RuntimeError(broken.pop())
        return cross_entropy(model(given[0]), given[1])

    learner = build(rule, Fifo(100), loss=loss)
    for each in (learner, whole):
        each.observe(*batch(0, 3))
    whole.memory.sample(256)
    broken.append("the current pass fails, after the memory's")
    with pytest.raises(RuntimeError, match="fails"):
        learner.observe(*batch(1))
    for each in (learner, whole):
        each.observe(*batch(2, 4))
    assert torch.equal(weights(learner), weights(whole))


class Normed(nn.Sequential):
    """A network with running averages."""

    def __init__(self):
        torch.manual_seed(0)
        norms = nn.BatchNorm1d(7), nn.BatchNorm1d(7)
        super().__init__(nn.Linear(5, 7), *norms, nn.Linear(7, 3))
        self.double()


def known(learner):
    """Return all that a learner knows, as one text."""
    torch.set_printoptions(precision=17)
    try:
        return str([learner.model.state_dict(), learner.optimizer.state_dict()["state"]]), str(
            learner.memory.state_dict()
        )
    finally:
        torch.set_printoptions(profile="default")


def normed(rule, **options):
    model = Normed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    return Learner(model, optimizer, rule, Memory(Fifo(100)), **options)


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_a_batch_that_is_not_finite_is_neither_learnt_nor_kept(rule):
    learner = normed(rule)
    train(learner, tasks=1)
    before = known(learner)
    inputs, classes = batch(1)
    inputs[2, 3] = math.nan
    with pytest.raises(EngramError, match=r"Example 2 of the batch.*not finite"):
        learner.observe(inputs, classes, task=1)
    assert known(learner) == before


@pytest.mark.parametrize("rule", RULES, ids=name)
@pytest.mark.parametrize("row", ["current", "memory"])
def test_a_loss_that_is_not_finite_changes_nothing(rule, row):
    """Nor do the running averages, which the passes have moved, nor the optimiser's."""
    wrong = []

    def loss(model, given, _):
        plain = cross_entropy(model(given[0]), given[1])
        return plain * (math.nan if wrong and (len(given[0]) == 5) == (row == "current") else 1)

    learner = normed(rule, loss=loss)
    train(learner, tasks=1)
    before, held = known(learner)[0], len(learner.memory)
    wrong.append(True)
    if row == "memory" and rule.reference == "none":
        return
    named = "task 0" if row == "memory" and rule.reference == "per task" else row
    with pytest.raises(EngramError, match=f"The row '{named}' has a loss of nan; the step is ref"):
        learner.observe(*batch(1, 5), task=1)
    assert known(learner)[0] == before
    assert len(learner.memory) == held


@pytest.mark.parametrize("rule", [MEGA1(), MEGA2()], ids=name)
def test_a_negative_value_is_refused_where_values_are_compared(rule):
    learner = normed(rule, loss=lambda model, given, _: -model(given[0]).square().mean())
    before = known(learner)
    with pytest.raises(EngramError, match="The row 'current' has a value of -"):
        learner.observe(*batch(0))
    assert known(learner) == before


def test_the_check_can_be_switched_off():
    learner = normed(
        MEGA2(), loss=lambda model, given, _: model(given[0]).sum() * math.nan, check_finite=0
    )
    learner.observe(*batch(0))
    assert weights(learner).isnan().any()
    assert len(learner.memory) == 6
    for wrong in (-1, True, 0.5):
        with pytest.raises(EngramError, match="check_finite is"):
            normed(MEGA2(), check_finite=wrong)


@pytest.mark.parametrize("rule", RULES, ids=name)
@pytest.mark.parametrize("ask", ["observe", "settle", "end_task", "state_dict"])
def test_on_a_device_weights_and_memory_stay_as_before_the_bad_step(rule, ask, monkeypatch):
    """The device is a CPU that is not waited for."""
    unwaited(monkeypatch)
    wrong = []

    def loss(model, given, _):
        plain = cross_entropy(model(given[0]), given[1])
        return plain * (math.nan if wrong and len(given[0]) == 5 else 1)

    learner, twin = (normed(rule, loss=loss, check_finite=6) for _ in range(2))
    for each in (learner, twin):
        train(each, tasks=1, steps=2)
    before, buffers = weights(learner), copy.deepcopy(learner.model.state_dict())
    wrong.append(True)
    learner.observe(*batch(1, 5), task=1)
    wrong.clear()
    for step in range(2):
        learner.observe(*batch(step), task=1)
        assert torch.equal(weights(learner), before)
        for key, buffer in learner.model.state_dict().items():
            assert torch.equal(buffer, buffers[key])
    asked = {"observe": lambda: learner.observe(*batch(3), task=1)}
    with pytest.raises(EngramError, match="In step 3, the row 'current' has a loss of nan"):
        asked.get(ask, getattr(learner, ask))()
    assert torch.equal(weights(learner), before)
    assert str(learner.memory.state_dict()) == str(twin.memory.state_dict())
    learner.observe(*batch(4), task=1)
    assert not torch.equal(weights(learner), before)
    assert weights(learner).isfinite().all()
    assert len(learner.memory) == 18


@pytest.mark.parametrize("rule", RULES, ids=name)
@pytest.mark.parametrize("device", [unwaited, scattered], ids=lambda made: made.__name__)
def test_on_a_device_a_batch_with_a_value_that_only_the_memory_minds_is_void(
    rule, device, monkeypatch
):
    device(monkeypatch)

    def loss(model, given, _):
        return cross_entropy(model(given[0].nan_to_num()), given[1])

    learner = normed(rule, loss=loss)
    train(learner, tasks=1, steps=3)
    before, held = weights(learner), [*learner.memory.examples()]
    inputs, classes = batch(7)
    inputs[2, 3] = math.nan
    learner.observe(inputs, classes, task=1)
    learner.observe(*batch(8), task=1)
    with pytest.raises(EngramError, match="In step 4, the row 'current' has a loss of nan"):
        learner.settle()
    assert torch.equal(weights(learner), before)
    assert [*learner.memory.examples()] == held


class Counting(nn.Module):
    """A layer with buffers of these shapes that every pass adds to, some of them large or odd."""

    def __init__(self, shapes):
        super().__init__()
        self.own = nn.Linear(5, 3, dtype=torch.float64)
        for place, shape in enumerate(shapes):
            self.register_buffer(f"seen{place}", torch.zeros(shape))
        self.register_buffer("turned", torch.zeros(3, 2).T)
        self.register_buffer("none", None)

    def forward(self, inputs):
        for buffer in self.buffers():
            buffer += 1
        return self.own(inputs)


@pytest.mark.parametrize(
    "shapes", [[()], [(), ()], [(4,), (2,)], [(), (4,), (2, 3)], [(2, 3), (1, 1)], [(200, 200), ()]]
)
@pytest.mark.parametrize("late", [False, True])
def test_buffers_of_every_shape_stay_as_before_a_bad_step(shapes, late, monkeypatch):
    if late:
        unwaited(monkeypatch)
    layer, wrong = Counting(shapes), []
    model = nn.Sequential(nn.Sequential(layer), layer)  # the same one twice: it counts once
    model.forward = lambda inputs: layer(inputs)

    def loss(model, given, _):
        return cross_entropy(model(given[0]), given[1]) * (math.nan if wrong else 1)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    learner = Learner(model, optimizer, MEGA2(), Memory(Fifo(20)), loss=loss)
    for seed in range(2):
        learner.observe(*batch(seed))
    assert all((buffer == 3).all() for buffer in model.buffers())
    wrong.append(True)

    def observe():
        learner.observe(*batch(2))
        learner.settle()

    with pytest.raises(EngramError, match="has a loss of nan"):
        observe()
    assert all((buffer == 3).all() for buffer in model.buffers())


@pytest.mark.parametrize("rule", [MEGA1(), MEGA2()], ids=name)
def test_a_device_that_is_asked_seldom_learns_what_the_host_does(rule, monkeypatch):
    learner, twin = normed(rule, check_finite=3), normed(rule)
    train(twin)
    unwaited(monkeypatch)
    train(learner)
    torch.testing.assert_close(weights(learner), weights(twin), rtol=1e-9, atol=1e-12)
    assert list(learner.memory.examples()) == list(twin.memory.examples())


@pytest.mark.parametrize(
    "made", [torch.optim.SGD, torch.optim.SparseAdam], ids=lambda m: m.__name__
)
def test_on_a_device_sparse_gradients_of_a_bad_step_are_void_too(made, monkeypatch):
    """An embedding's, where the rule compares no gradients and one pass serves both losses."""
    unwaited(monkeypatch)
    torch.manual_seed(0)
    model = nn.Embedding(10, 3, sparse=True)
    factors = [1, 1, math.nan, 1, 1]  # of the losses, in the order of the steps

    def loss(model, given, _):
        return cross_entropy(model(given[0]), given[1]) * factors[0]

    optimizer = made(model.parameters(), lr=0.1)
    learner = Learner(model, optimizer, MEGA1(), Memory(Fifo(20)), loss=loss, check_finite=4)

    def observe():
        learner.observe(torch.tensor([1, 1, 2]), torch.tensor([0, 1, 2]))
        factors.pop(0)

    observe()
    observe()
    assert model.weight.grad.is_sparse
    before = weights(learner)
    observe()
    assert torch.equal(weights(learner), before)
    with pytest.raises(EngramError, match="In step 3, the row 'current' has a loss of nan"):
        observe()
    assert torch.equal(weights(learner), before)
    observe()
    assert not torch.equal(weights(learner), before)
    assert weights(learner).isfinite().all()


def test_the_models_mode_is_the_users():
    learner = build(MEGA2(), Reservoir(20))
    learner.model.eval()
    learner.observe(*batch(0))
    assert not learner.model.training


@pytest.mark.parametrize(
    ("given", "words"),
    [((), "nothing"), (([1.0],), r"\['list'\]"), ((torch.ones(()),), r"\['Tensor'\]")],
)
def test_what_is_no_batch_is_refused(given, words):
    with pytest.raises(EngramError, match=words):
        build(MEGA2(), Reservoir(20)).observe(*given)


REFUSED = {
    "nothing in it": (batch(1, 0), {}, "at least one example"),
    "lengths differ": ((torch.ones(2, 5), torch.ones(3).long()), {}, "lengths are 2, 3"),
    "another dtype": ((torch.ones(2, 5), torch.ones(2).long()), {}, "float32.*float64"),
    "too few ids": (batch(1), {"ids": [1]}, "ids has 1"),
    "no task": (batch(1), {"task": None}, "with tasks"),
    "a task by name": (batch(1), {"task": "birds"}, "task.*integer"),
    "tags are a number": (batch(1), {"tags": 5}, "tags 5 are not a mapping"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("rule", [MEGA1(), MEGA2()], ids=name)
def test_a_batch_that_the_memory_would_refuse_is_not_learnt(rule, case):
    given, options, words = REFUSED[case]
    learner = build(rule, ClassRing(4))
    train(learner, tasks=1)
    before, held = weights(learner), str(learner.memory.state_dict())
    with pytest.raises(EngramError, match=words):
        learner.observe(*given, **{"task": 1, **options})
    assert torch.equal(weights(learner), before)
    assert str(learner.memory.state_dict()) == held


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_a_batch_that_the_loss_writes_to_is_neither_learnt_nor_kept(rule):
    """It would be remembered as what it became, and be changed once more when it is looked at."""

    def loss(model, batch, _):
        return cross_entropy(model(batch[0].div_(255)), batch[1])

    learner = build(rule, ClassRing(4), loss=loss)
    before = weights(learner)
    with pytest.raises(EngramError, match="The loss, or the model, writes to the batch"):
        learner.observe(*batch(0), task=0)
    assert torch.equal(weights(learner), before)
    assert len(learner.memory) == 0


def test_a_batch_of_a_server_s_is_learnt():
    """A tensor of inference mode does not tell whether it is written to."""
    with torch.inference_mode():
        given = batch(0)
    learner = build(MEGA2(), Reservoir(20), loss=lambda model, batch, _: model(batch[0] + 0).sum())
    learner.observe(*given)
    assert len(learner.memory) == 6


def test_a_budget_below_one_example_is_noticed_before_the_step():
    learner = build(MEGA2(), Reservoir(20))
    learner.memory = Memory(Reservoir(20), max_bytes=39)
    before = weights(learner)
    with pytest.raises(EngramError, match="less than the 48 bytes"):
        learner.observe(*batch(0))
    assert torch.equal(weights(learner), before)


def test_other_mistakes_are_told():
    for wrong in (2.5, "many", True):
        with pytest.raises(EngramError, match="reference_batch is"):
            build(MEGA2(), Reservoir(20), reference_batch=wrong)
    with pytest.raises(EngramError, match="rule must be one such as MEGA2"):
        build(MEGA2, Reservoir(20)).observe(*batch(0))
    with pytest.raises(EngramError, match="memory is a Reservoir"):
        Learner(network(), torch.optim.SGD(network().parameters()), MEGA2(), Reservoir(20))
    with pytest.raises(
        EngramError, match="reference_batch is 0; it must be a whole number of at least 1"
    ):
        build(MEGA2(), Reservoir(20), reference_batch=0)
    learner = build(MEGA2(), Reservoir(20))
    with pytest.raises(EngramError, match="a loss of your own"):
        learner.observe({"x": torch.ones(2, 5)})
    with pytest.raises(EngramError, match="'optimizer', 'memory'"):
        learner.load_state_dict({"model": {}})


def other_model(state):
    state["model"] = {key: tensor[:1] for key, tensor in state["model"].items()}


def other_key(state):
    state["model"]["9.weight"] = torch.ones(3)


def other_group(state):
    state["optimizer"]["param_groups"].pop()


def fewer_parameters(state):
    state["optimizer"]["param_groups"][0]["params"].pop()


def another_optimizer(state):
    adam = torch.optim.Adam(network().parameters())
    state["optimizer"]["param_groups"] = adam.state_dict()["param_groups"]


def momentum_of_another_shape(state):
    state["optimizer"]["state"][3]["momentum_buffer"] = torch.ones(2, dtype=torch.float64)


def momentum_of_no_shape(state):
    state["optimizer"]["state"][1] = 5


def other_memory(state):
    state["memory"]["max_bytes"] = -1


def other_policy(state):
    state["memory"] = build(MEGA2(), Reservoir(7)).memory.state_dict()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (other_model, "not of this model: .*size mismatch"),
        (other_key, "not of this model: .*9.weight"),
        (other_group, "not of this optimizer: "),
        (fewer_parameters, "not of this optimizer: "),
        (another_optimizer, "not of this optimizer, SGD: it has no dampening, momentum"),
        (momentum_of_another_shape, r"its momentum_buffer is of shape \[2\], for .* needs \[3\]"),
        (momentum_of_no_shape, "not of this optimizer: "),
        (other_memory, "max_bytes"),
        (other_policy, "Reservoir"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
@pytest.mark.parametrize("trained", [True, False])
def test_a_state_is_loaded_whole_or_not_at_all(spoil, words, trained):
    learner, other = build(MEGA2(), Fifo(20)), build(MEGA2(), Fifo(20))
    train(other)
    if trained:
        train(learner, first=5, tasks=1)
    state = copy.deepcopy(other.state_dict())
    spoil(state)
    before, groups = known(learner), str(learner.optimizer.param_groups)
    with pytest.raises(EngramError, match=words):
        learner.load_state_dict(state)
    assert known(learner) == before
    assert str(learner.optimizer.param_groups) == groups
    learner.load_state_dict(other.state_dict())
    assert known(learner) == known(other)


def test_an_optimiser_that_needs_a_closure_is_refused():
    model = network()
    lbfgs = torch.optim.LBFGS(model.parameters())
    with pytest.raises(EngramError, match=r"LBFGS.step\(\) needs a closure"):
        Learner(model, lbfgs, MEGA2(), Memory(Fifo(20)))
    learner = build(MEGA2(), Fifo(20))
    with pytest.raises(EngramError, match=r"LBFGS.step\(\) needs a closure"):
        learner.optimizer = lbfgs
    learner.observe(*batch(0))


def test_a_scheduler_that_wraps_the_step_is_no_closure():
    learner = build(MEGA2(), Fifo(20))
    torch.optim.lr_scheduler.StepLR(learner.optimizer, 1)
    Learner(learner.model, learner.optimizer, MEGA2(), Memory(Fifo(20))).observe(*batch(0))


def test_a_learner_says_what_it_is_made_of():
    learner = build(MEGA2(), Fifo(20), reference_batch=8)
    learner.observe(*batch(0))
    told = repr(learner)
    for part in ("Sequential", "SGD over 4 parameters", "MEGA2(", "6 examples", "Fifo", "=8"):
        assert part in told


def test_a_sentence_of_torchs_ends_once():
    learner = build(MEGA2(), Reservoir(20))
    state = learner.state_dict()
    state["model"] = {name: tensor[:1] for name, tensor in state["model"].items()}
    for mistake in (
        lambda: learner.observe(batch(0)[0], torch.full((6,), 7)),
        lambda: learner.load_state_dict(state),
    ):
        with pytest.raises(EngramError, match=r"[^. ]\.$"):
            mistake()
