"""Any optimiser and schedule of torch's in the place of plain SGD."""

from dataclasses import replace

import pytest
import torch
from dying_checkpoints import Dying, Killed, checkpoint
from test_network_runs import Everything, Small
from tiny_worlds import run_whole, same_bits, tiny_spec
from torch.nn.functional import cross_entropy

from engram.errors import EngramError
from engram.lab.engine import Batch, OptimizedRuns, Rows
from engram.lab.methods import MethodSettings, method_entry, names
from engram.lab.networks import MLP, ModuleNetwork, network_source
from engram.lab.protocol import run, specify
from engram.rules import MEGA2, Current

SHAPE, CLASSES, STEPS = (5,), 3, 6
CHOICES = {
    "momentum": {"optimizer_settings": "momentum=0.9, nesterov=True"},
    "adamw": {"optimizer": "adamw", "optimizer_settings": "weight_decay=0.1"},
    "rmsprop": {"optimizer": "rmsprop"},
    "nadam": {"optimizer": "nadam"},
    "adafactor": {"optimizer": "adafactor"},  # it goes by the shapes of weights
    "steps": {"schedule": "steplr", "schedule_settings": "step_size=1, gamma=0.5"},
    "every other step": {
        "optimizer": "adam",
        "schedule": "exponentiallr",
        "schedule_settings": "gamma=0.5",
        "schedule_every": 2,
    },
    "cycle": {"schedule": "onecyclelr", "schedule_settings": "max_lr=0.3, total_steps=10"},
}
ADAMW = {
    "optimizer": "adamw",
    "learning_rate": 0.01,
    "optimizer_settings": "weight_decay=0.1",
    "schedule": "cosineannealinglr",
    "schedule_settings": "T_max=9",
}


def batches(runs, seed=0):
    source = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        inputs = torch.rand(runs, 7, *SHAPE, generator=source, dtype=torch.float64)
        yield Batch(inputs, torch.randint(CLASSES, (runs, 7), generator=source))


def rows_of(network, flat, settings):
    rows = Rows(network, flat)
    rate = torch.tensor([[settings.learning_rate]] * len(flat), dtype=torch.float64)
    rows.optimizer = OptimizedRuns(network, flat, settings, rate if len(flat) > 1 else 0.1)
    return rows


@pytest.mark.numerical
@pytest.mark.parametrize("chosen", CHOICES.values(), ids=CHOICES)
def test_steps_are_those_of_an_ordinary_loop(chosen):
    settings = MethodSettings(**chosen)
    network = ModuleNetwork(network_source(Small), SHAPE, CLASSES)
    module = network_source(Small).build(SHAPE, CLASSES).double()
    flat = torch.cat([value.detach().flatten() for value in module.parameters()])[None].clone()
    kinds = {each.lower(): each for each in dir(torch.optim)}
    arguments = eval(f"dict({settings.optimizer_settings})")
    kind = getattr(torch.optim, kinds[settings.optimizer])
    optimizer = kind(module.parameters(), lr=0.1, **arguments)
    schedule = None
    if settings.schedule != "constant":
        schedules = {each.lower(): each for each in dir(torch.optim.lr_scheduler)}
        kind = getattr(torch.optim.lr_scheduler, schedules[settings.schedule])
        schedule = kind(optimizer, **eval(f"dict({settings.schedule_settings})"))
    rows = rows_of(network, flat, settings)
    for step, batch in enumerate(batches(1), start=1):
        with torch.no_grad():
            rows.step(Current(), 0.1, batch, None)
        optimizer.zero_grad()
        cross_entropy(module(batch.inputs[0]), batch.labels[0]).backward()
        optimizer.step()
        if schedule is not None and step % settings.schedule_every == 0:
            schedule.step()
        expected = torch.cat([value.detach().flatten() for value in module.parameters()])
        torch.testing.assert_close(flat[0], expected, rtol=1e-9, atol=1e-11)


@pytest.mark.numerical
def test_the_gradient_of_a_step_is_the_mixture():
    network = MLP((*SHAPE, 4, CLASSES))
    flat = torch.rand(1, network.size, dtype=torch.float64) - 0.5
    settings = MethodSettings(optimizer="adam")
    weights = flat[0].clone().requires_grad_()
    adam = torch.optim.Adam([weights], lr=0.1)
    plain, rows = Rows(network, flat.clone()), rows_of(network, flat, settings)
    for current, reference in zip(batches(1), batches(1, seed=1), strict=True):
        plain.parameters.copy_(weights.detach())
        with torch.no_grad():
            losses, gradients = plain.of(current, reference)
            mixed = MEGA2()(losses, gradients @ gradients.mT) @ gradients
            rows.step(MEGA2(), 0.1, current, reference)
        weights.grad = mixed[0, 0] if mixed.dim() > 2 else mixed[0]
        adam.step()
        torch.testing.assert_close(flat[0], weights.detach(), rtol=1e-9, atol=1e-11)


@pytest.mark.numerical
@pytest.mark.parametrize("method", [name for name in names() if name not in ("prog-nn", "gdumb")])
def test_sgd_by_the_general_path_is_plain_sgd(method):
    # A momentum of 0 is SGD as it is, and is taken by torch's.
    plain = tiny_spec(method, "tiny-double", tasks=2, examples=12)
    general = tiny_spec(
        method, "tiny-double", tasks=2, examples=12, optimizer_settings="momentum=0.0"
    )
    (_, one), (_, other) = run_whole(plain, [0]), run_whole(general, [0])
    torch.testing.assert_close(other[0]["parameters"], one[0]["parameters"], rtol=1e-8, atol=1e-10)
    for name in ("path_integral", "penalty_weight", "total"):
        if name in one[0]:
            torch.testing.assert_close(other[0][name], one[0][name], rtol=1e-6, atol=1e-9)


@pytest.mark.numerical
@pytest.mark.parametrize("method", ["mega-ii", "ewc", "icarl"])
def test_runs_of_a_stack_are_the_same_alone(method):
    specs = [
        tiny_spec(method, "tiny-double", **ADAMW | {"learning_rate": rate}) for rate in (0.01, 0.02)
    ]
    together, stack = run_whole(specs, [3, 4])
    for place, spec in enumerate(specs):
        (alone,), own = run_whole(spec, [3 + place])
        assert alone["accuracy"] == together[place]["accuracy"]
        torch.testing.assert_close(own[0]["parameters"][0], stack[0]["parameters"][place])


@pytest.mark.numerical
@pytest.mark.parametrize("method", ["mega-ii", "rwalk"])
@pytest.mark.parametrize("network", [None, Everything])
def test_a_run_that_is_killed_and_resumed_ends_with_the_same_bits(method, network, tmp_path):
    spec = tiny_spec(method, tasks=2, examples=16, **ADAMW)
    if network is not None:
        spec = replace(spec, network=network_source(network))
    whole = run_whole(spec, [0, 1])
    deaths = 0
    while True:
        try:
            again = run_whole(spec, [0, 1], checkpoint=checkpoint(tmp_path, Dying, lives=2))
            break
        except Killed:
            deaths += 1
    assert deaths == 4
    assert same_bits(again, whole)


def test_the_optimisers_state_counts_as_the_methods():
    (plain,), (adam,) = (run(tiny_spec("van", **more), [0]) for more in ({}, ADAMW))
    held = 2 * 4 * plain.facts["parameters"] + 4 * 4  # two averages, and four counts of steps
    assert adam.facts["state_bytes"] - plain.facts["state_bytes"] == held


def test_plain_sgd_adds_nothing_to_what_a_result_is_filed_under():
    given = {"optimizer": "sgd", "schedule": "constant", "schedule_every": "1"}
    plain, named = specify("permuted-mnist", "er"), specify("permuted-mnist", "er", overrides=given)
    assert named.identity() == plain.identity()
    assert not [name for name in plain.identity()["settings"] if "optim" in name or "sched" in name]


def test_arguments_are_filed_in_one_way_of_writing_them():
    texts = ("weight_decay=1e-2,betas=( .9, .99)", "betas = (0.9, 0.99),  weight_decay = 0.01")
    one, other = (
        specify(
            "permuted-mnist", "er", overrides={"optimizer": "adamw", "optimizer_settings": text}
        ).identity()
        for text in texts
    )
    assert one == other
    assert one["settings"]["optimizer_settings"] == "betas=(0.9,0.99),weight_decay=0.01"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"optimizer": "adm"}, "There is no optimizer 'adm' (did you mean 'adam'?)"),
        ({"optimizer": "lbfgs"}, "optimizer must not be lbfgs, because it asks for the loss"),
        ({"schedule": "lambdalr"}, "schedule must not be lambdalr, because it takes a function"),
        (
            {"optimizer": "adamw", "optimizer_settings": "wd=1"},
            "optimizer adamw does not take wd=1",
        ),
        (
            {"optimizer": "adamw", "optimizer_settings": "weight_decay=-1"},
            "optimizer adamw does not take weight_decay=-1: Invalid weight_decay value: -1",
        ),
        (
            {"optimizer": "adamw", "optimizer_settings": "lr=1"},
            "The step size is the setting learning_rate, not lr.",
        ),
        (
            {"optimizer": "adamw", "optimizer_settings": "__import__('os')"},
            "optimizer_settings must be like weight_decay=0.01",
        ),
        (
            {"optimizer": "adamw", "optimizer_settings": "betas=open('x')"},
            "optimizer_settings must be like weight_decay=0.01",
        ),
        ({"schedule": "steplr"}, "schedule steplr does not take"),
        ({"schedule_settings": "T_max=3"}, "schedule_settings are those of a schedule"),
        ({"schedule_every": "0"}, "schedule_every must be a whole number below 2^31 and at least"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(given, sentence):
    with pytest.raises(EngramError) as error:
        specify("permuted-mnist", "van", overrides=given)
    assert sentence in str(error.value)


@pytest.mark.parametrize("method", ["prog-nn", "gdumb"])
def test_methods_with_steps_of_their_own_take_plain_ones_alone(method):
    with pytest.raises(EngramError, match=f"optimizer must be sgd for {method}"):
        run(tiny_spec(method, optimizer="adam"), [0])


def test_every_method_has_the_settings():
    for name in names():
        assert method_entry(name).settings().optimizer == "sgd"
