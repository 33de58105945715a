"""A mistake gets one clear sentence, and the mixer is ready for the next step."""

import pytest
import torch
from gradient_oracles import POOLED, examples, loss_on, network, sgd, written
from torch import nn

import engram
from engram.errors import EngramError
from engram.gradients import backward_each
from engram.memory import Fifo, Memory
from engram.rules import GEM, MEGA1, MEGA2, Current, Equal
from interruptions import interrupted

BATCH = examples(1, 4)


@pytest.fixture
def model():
    return network()


@pytest.fixture
def mixer(model):
    return engram.GradientMixer(sgd(model), MEGA2())


def test_mix_needs_the_current_row(model, mixer):
    with pytest.raises(EngramError, match=r"mix\(\) needs the row 'current', and nothing"):
        mixer.mix()
    mixer.backward(loss_on(model, examples(1, 4)), row="memory")
    with pytest.raises(EngramError, match=r"'current', and \['memory'\] was given"):
        mixer.mix()


def test_after_a_mistake_the_mixer_is_empty(model, mixer):
    mixer.backward(loss_on(model, examples(1, 4)), row="memory")
    with pytest.raises(EngramError):
        mixer.mix()
    mixer.backward(loss_on(model, examples(2, 4)))
    assert mixer.mix().weights.tolist() == [1]


def test_after_a_mix_the_mixer_is_empty(model, mixer):
    mixer.backward(loss_on(model, examples(1, 4)))
    mixer.mix()
    with pytest.raises(EngramError, match="nothing was given"):
        mixer.mix()
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_rule_that_raises_leaves_no_gradient_and_no_row(model):
    class Broken(MEGA2):
        def weigh_pair(self, *_):
            raise RuntimeError("out of memory")

    mixer = engram.GradientMixer(sgd(model), Broken())
    for row in ["memory", "current"]:
        mixer.backward(loss_on(model, examples(1, 4)), row=row)
    with pytest.raises(RuntimeError, match="out of memory"):
        mixer.mix()
    assert all(parameter.grad is None for parameter in model.parameters())
    with pytest.raises(EngramError, match="nothing was given"):
        mixer.mix()


def test_a_pass_that_breaks_off_discards_the_step(model, mixer):
    """Part of its gradient may be in the row already; mixing it would be wrong silently."""
    mixer.backward(loss_on(model, examples(1, 4)))
    loss = loss_on(model, examples(2, 4))
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        mixer.backward(loss)
    with pytest.raises(EngramError, match="nothing was given"):
        mixer.mix()


def test_a_loss_must_require_a_gradient(model, mixer):
    with torch.no_grad():
        loss = loss_on(model, examples(1, 4))
    with pytest.raises(EngramError, match="must require a gradient"):
        mixer.backward(loss)
    with pytest.raises(EngramError, match="must require a gradient"):
        engram.backward([loss], model.parameters(), MEGA2())


def test_a_loss_must_be_a_single_number(model, mixer):
    with pytest.raises(EngramError, match=r"single number, not a tensor of shape \[4, 3\]"):
        mixer.backward(model(examples(1, 4)[0]))
    with pytest.raises(EngramError, match="must be a tensor, not float"):
        mixer.backward(0.5)
    with pytest.raises(EngramError, match=r"value must be a single number.* \[2\]"):
        mixer.backward(loss_on(model, examples(1, 4)), value=torch.ones(2))


@pytest.mark.parametrize("rule", POOLED, ids=lambda rule: type(rule).__name__)
def test_a_pooled_rule_has_one_reference_row(model, rule):
    mixer = engram.GradientMixer(sgd(model), rule)
    mixer.backward(loss_on(model, examples(1, 4)), row="memory")
    with pytest.raises(EngramError, match="one row, which is 'memory' already, so 'other'"):
        mixer.backward(loss_on(model, examples(2, 4)), row="other")


def test_any_hashable_names_a_row_of_a_rule_by_task(model):
    mixer = engram.GradientMixer(sgd(model), GEM())
    for row in [("task", 3), 7, "current", None]:
        mixer.backward(loss_on(model, examples(1, 4)), row=row)
    assert mixer.mix().weights.shape == (4,)


@pytest.mark.parametrize("row", [torch.zeros(2), [0], (0, [1])], ids=repr)
def test_a_row_is_named_by_what_can_be_told_from_others(model, row):
    mixer = engram.GradientMixer(sgd(model), GEM())
    mixer.backward(loss_on(model, examples(1, 4)), row=0)
    with pytest.raises(EngramError, match="row must be a name or a number"):
        mixer.backward(loss_on(model, examples(2, 4)), row=row)


def test_backward_wants_a_loss_and_a_value_for_each(model):
    with pytest.raises(EngramError, match="losses must hold the current loss"):
        engram.backward([], model.parameters(), MEGA2())
    loss = loss_on(model, examples(1, 4))
    with pytest.raises(EngramError, match="as many as losses, 1, and there are 2"):
        engram.backward([loss], model.parameters(), MEGA2(), values=[1.0, 2.0])


def test_parameters_that_were_listed_once_already_are_refused(model):
    parameters = model.parameters()
    engram.backward([loss_on(model, examples(1, 4))], parameters, MEGA2())
    with pytest.raises(EngramError, match=r"gives none: an iterator, such as model.parameters\(\)"):
        engram.backward([loss_on(model, examples(1, 4))], parameters, MEGA2())
    loss = loss_on(model, examples(1, 4))
    with pytest.raises(EngramError, match="gives none"):
        backward_each([(loss, loss)], parameters, MEGA2())


def test_backward_each_wants_pairs_and_one_at_least(model):
    for nothing in ([], iter(())):
        with pytest.raises(EngramError, match="losses must hold the current loss"):
            backward_each(nothing, model.parameters(), MEGA2())
    loss = loss_on(model, examples(1, 4))
    for wrong in (loss, (loss, loss, loss), 3):
        with pytest.raises(EngramError, match="pairs of a loss and its value"):
            backward_each([wrong], model.parameters(), MEGA2())
    with pytest.raises(EngramError, match="pairs of a loss and its value, not"):
        backward_each(3, model.parameters(), MEGA2())


def nested():
    return torch.nested.nested_tensor([torch.ones(1)], layout=torch.jagged, requires_grad=True)


def quantized():
    return torch.quantize_per_tensor(torch.ones(1), 0.1, 0, torch.qint8)


def sparse():
    return torch.ones(1, requires_grad=True).to_sparse()


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::UserWarning"
)  # of nested tensors
@pytest.mark.parametrize("made", [nested, quantized, sparse], ids=lambda made: made.__name__)
def test_a_loss_is_a_plain_tensor(model, mixer, made):
    for mistake in (
        lambda: mixer.backward(made()),
        lambda: engram.backward([made()], model.parameters(), MEGA2()),
        lambda: backward_each([(made(), 1.0)], model.parameters(), MEGA2()),
    ):
        with pytest.raises(EngramError, match="loss must be a"):
            mistake()
    if made is not sparse:
        with pytest.raises(EngramError, match="value must be a single number"):
            mixer.backward(loss_on(model, BATCH), value=made())


@pytest.mark.parametrize("rule", [Current(), Equal(), MEGA1(), MEGA2(), GEM()], ids=repr)
def test_parameters_that_no_loss_reaches_are_refused(model, rule):
    """The optimiser of a model that was made anew would take steps that change nothing."""
    optimizer = sgd(network())
    mixer = engram.GradientMixer(optimizer, rule)
    learner = engram.Learner(model, optimizer, rule, Memory(Fifo(10)))
    other = [each for group in optimizer.param_groups for each in group["params"]]
    mixer.backward(loss_on(model, BATCH))
    for mistake in (
        mixer.mix,
        lambda: engram.backward([loss_on(model, BATCH)], other, rule),
        lambda: backward_each([(loss_on(model, BATCH), 1.0)], other, rule),
        lambda: learner.observe(*BATCH),
    ):
        with pytest.raises(EngramError, match="reaches none of the parameters"):
            mistake()
    assert len(learner.memory) == 0


def test_a_mixer_says_what_it_is_made_of(model, mixer):
    assert repr(mixer).startswith("GradientMixer(SGD over 4 parameters, MEGA2(")
    mixer.backward(loss_on(model, BATCH), row="memory")
    assert repr(mixer).endswith(", rows ['memory'])")


def test_sparse_gradients_are_refused():
    model = nn.Embedding(10, 3, sparse=True)
    mixer = engram.GradientMixer(sgd(model), MEGA2())
    mixer.backward(model(torch.tensor([1, 2])).sum())
    with pytest.raises(EngramError, match="sparse=False"):
        mixer.mix()


def test_a_mistake_leaves_grad_as_it_was(model, mixer):
    loss_on(model, examples(1, 4)).backward()
    before = written(model.parameters())
    with pytest.raises(EngramError):
        mixer.backward(torch.ones(()))
    assert torch.equal(written(model.parameters()), before)


def test_a_rule_is_an_instance(model):
    with pytest.raises(EngramError, match="rule must be one such as MEGA2"):
        engram.GradientMixer(sgd(model), MEGA2)
    with pytest.raises(EngramError, match="rule must be one such as MEGA2"):
        engram.backward([loss_on(model, BATCH)], model.parameters(), MEGA2)


def test_the_mixer_wants_the_optimiser_and_not_its_parameters(model):
    with pytest.raises(EngramError, match=r"optimizer must be one of torch's.*a generator"):
        engram.GradientMixer(model.parameters(), MEGA2())


def test_one_tensor_is_no_collection_of_parameters(model):
    with pytest.raises(EngramError, match="parameters must be a collection of tensors"):
        engram.backward([loss_on(model, BATCH)], model[0].weight, MEGA2())


@pytest.mark.parametrize("value", ["x", [1.0, 2.0]])
def test_a_value_is_a_single_number(model, value):
    with pytest.raises(EngramError, match="value must be a single number"):
        engram.backward([loss_on(model, BATCH)], model.parameters(), MEGA2(), values=[value])


class Breaks(torch.autograd.Function):
    """The identity; its backward pass raises, after those of what was computed from it."""

    @staticmethod
    def forward(_, value):
        return value.clone()

    @staticmethod
    def backward(_, gradient):  # noqa: ARG004
        raise RuntimeError("out of memory")


@pytest.mark.parametrize("rule", POOLED, ids=repr)
def test_a_pass_that_breaks_off_leaves_no_part_of_a_gradient(rule):
    first, second = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    losses = [Breaks.apply(first).sum(), second.square().sum()]
    with pytest.raises(RuntimeError, match="out of memory"):
        engram.backward(losses, [first, second], rule)
    assert first.grad is None
    assert second.grad is None


def test_whatever_interrupts_a_step_finds_a_whole_gradient_or_none(model):
    def step():
        mixer.backward(loss_on(model, BATCH) / 2)
        mixer.backward(loss_on(model, BATCH) / 2)
        mixer.backward(loss_on(model, BATCH), row="memory")
        mixer.mix()

    line = 1
    mixer = engram.GradientMixer(sgd(model), MEGA2())
    step()
    whole = [parameter.grad.clone() for parameter in model.parameters()]
    while True:
        for parameter in model.parameters():
            parameter.grad = None
        mixer = engram.GradientMixer(sgd(model), MEGA2())
        if not interrupted(step, "engram", line):
            break
        found = [parameter.grad for parameter in model.parameters()]
        if any(gradient is not None for gradient in found):
            assert all(map(torch.equal, found, whole)), f"at line {line}"
        line += 1
    assert line > 100
