"""The conformance kits: what is ours passes, and every broken promise is found and named."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn

from engram.errors import EngramError
from engram.lab.benchmarks import Examples, PermutedMnist, benchmark
from engram.memory import ClassRing, Fifo, Policy, Reservoir, Selective
from engram.memory.policies import POLICIES
from engram.rules import AGEM, GEM, MEGA2, Rule
from engram.rules.rule import RULES
from engram.testing import check_benchmark, check_network, check_policy, check_rule


@pytest.mark.parametrize("name", RULES.ours())
def test_every_rule_of_ours_conforms(name):
    assert check_rule(name)[-1] == "scale"


def test_gem_does_not_mind_the_order_of_the_tasks():
    assert check_rule(GEM(), symmetric=True)[-1] == "order"
    check_rule(MEGA2(least_area=1e-10), scale_free=False)


@dataclass(frozen=True)
class Plain(Rule):
    needs_gram = True
    reference = "per task"

    def weigh(self, losses, gram):  # noqa: ARG002
        return torch.ones_like(losses)


class Narrow(Plain):
    def weigh(self, losses, gram):  # noqa: ARG002
        return torch.ones_like(losses)[..., :1]


class Infinite(Plain):
    def weigh(self, losses, gram):
        return losses / gram[..., -1:, -1]


class Joined(Plain):
    def weigh(self, losses, gram):  # noqa: ARG002
        return losses / losses.abs().amax()


class Reading(Plain):
    reference = "pooled"

    def weigh(self, losses, gram):
        return torch.ones_like(losses) if float(gram.flatten()[0]) else losses


class Measuring(Plain):
    def weigh(self, losses, gram):
        return losses * (gram[..., :1, 0] > 10)


class Placed(Plain):
    def weigh(self, losses, gram):  # noqa: ARG002
        return torch.arange(1.0, losses.shape[-1] + 1, dtype=losses.dtype).expand(losses.shape)


class Doubting(Plain):
    def weigh_numbers(self, losses, gram, precision):  # noqa: ARG002
        return [2.0] * len(losses)


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        (Narrow(), r"must return a weight for each row, \[24, 2\], not \[24, 1\]"),
        (Infinite(), "returns weights that are not finite for 2 rows that are"),
        (Joined(), "weighs 2 rows otherwise beside other problems than alone"),
        (Reading(), "reads from the device"),
        (Measuring(), "gives other weights in another unit of the gradients"),
        (Placed(), "weighs the memory's rows by the order they come in"),
        (Doubting(), "weighs plain numbers otherwise than tensors"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_rule_s_broken_promise_is_named(rule, sentence):
    with pytest.raises(AssertionError, match=sentence) as caught:
        check_rule(rule, symmetric=True)
    assert str(caught.value).startswith(repr(rule))


def test_what_is_no_rule_is_refused():
    with pytest.raises(EngramError, match="rule must be the name of one, or a Rule"):
        check_rule(AGEM)


@pytest.mark.parametrize("name", POLICIES.ours())
def test_every_policy_of_ours_conforms(name):
    assert check_policy(name)[-1] == "saved"


@dataclass(frozen=True)
class First(Selective):
    """Keeps whoever came first."""

    capacity: int = 10
    by_class = False
    include_current = True

    @property
    def group_limit(self):
        return self.capacity

    def describe(self, batch):
        return batch[0][:, :2]

    def leaving(self, described, chance):  # noqa: ARG002
        return len(described) - 1


class Moody(First):
    def leaving(self, described, chance):  # noqa: ARG002
        return np.random.randint(len(described))


class Beyond(First):
    def leaving(self, described, chance):  # noqa: ARG002
        return len(described)


class Flat(First):
    def describe(self, batch):
        return batch[0][:, 0]


class ByBatch(First):
    def describe(self, batch):
        return batch[0][:, :1] - batch[0][:, :1].mean()

    def leaving(self, described, chance):  # noqa: ARG002
        return described[:, 0].argmin()


class Unsaid(Reservoir):
    def __init__(self):
        super().__init__(capacity=5)


def test_a_policy_that_looks_conforms():
    assert check_policy(First()) == check_policy(Reservoir(5))


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        (Moody(), "keeps other examples when it is run again with the same seed"),
        (ByBatch(), "keeps other examples where they come in batches of another size"),
        (Unsaid(), "is refused by a memory: .* could not be loaded again"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_policy_s_broken_promise_is_named(policy, sentence):
    with pytest.raises(AssertionError, match=sentence) as caught:
        check_policy(policy)
    assert str(caught.value).startswith(repr(policy))


def test_what_a_policy_says_is_checked_by_the_memory():
    with pytest.raises(EngramError, match=r"Beyond\.leaving must return a place from 0 to 10, not"):
        check_policy(Beyond())
    with pytest.raises(EngramError, match=r"Flat.describe must return a tensor \[7, k\] for 7"):
        check_policy(Flat())
    with pytest.raises(EngramError, match="policy must be the name of one, or a Policy"):
        check_policy(ClassRing)


def test_policies_have_names_and_fields():
    with pytest.raises(EngramError, match=r"There is no value of memory 'rng' \(did you mean 'ri"):
        check_policy("rng")
    assert isinstance(POLICIES.get("fifo")(3), Fifo)
    assert issubclass(POLICIES.get("ring"), Policy)


class Seedless(PermutedMnist):
    def __init__(self, seeds, *sizes, **options):
        super().__init__([0 for _ in seeds], *sizes, **options)


class Drawn(PermutedMnist):
    def training_examples(self, task):
        found = super().training_examples(task)
        return found._replace(inputs=found.inputs + torch.randint(2, (), dtype=torch.uint8) * 3)


class Long(PermutedMnist):
    def length(self, task):  # noqa: ARG002
        return self.examples + 1


class Strange(PermutedMnist):
    def training_examples(self, task):
        inputs, labels = super().training_examples(task)
        return Examples(inputs, labels + 5)


class Twice(PermutedMnist):
    def train(self, task):
        return self.training_examples(task)


class Shared(PermutedMnist):
    def test(self, task, *, curve=False):
        batch = next(iter(super().test(task, curve=curve)))
        stored, labels = self.training_examples(task)
        seen = self.normalise(stored)[0]
        yield batch._replace(inputs=seen, labels=labels[0], columns=None)


class Other(PermutedMnist):
    def joint_examples(self, part):
        inputs, labels = super().joint_examples(part)
        return Examples(inputs[:, :1].expand_as(inputs), labels)


@pytest.mark.parametrize(
    ("stream", "sentence"),
    [
        (Seedless, "serves the same examples in the same order to every seed"),
        (Drawn, "serves other examples when it is built again with the same seed"),
        (Long, r"serves \[1, 20\] examples of task 0, and says that it has 21"),
        (Strange, r"has the label \d+ in task 0, and 10 classes"),
        (Twice, "serves task 0 twice"),
        (Shared, "tests task 0 on 20 examples that it trains on"),
        (Other, "does not serve each example once in the union of all tasks"),
    ],
)
def test_a_benchmark_s_broken_promise_is_named(stream, sentence):
    torch.manual_seed(0)
    with pytest.raises(AssertionError, match=f"^permuted-mnist {sentence}"):
        check_benchmark(replace(benchmark("permuted-mnist"), build=stream))


def test_a_benchmark_of_ours_conforms():
    done = check_benchmark(replace(benchmark("permuted-mnist"), tuning_tasks=0))
    assert done == check_benchmark("permuted-mnist")[:-1]
    with pytest.raises(EngramError, match="benchmark must be the name of one, or a Benchmark"):
        check_benchmark(PermutedMnist)


class Net(nn.Module):
    def __init__(self, shape, outputs):
        super().__init__()
        self.layer = nn.Linear(shape[0], outputs)

    def forward(self, inputs):
        return self.layer(inputs)


class Wide(Net):
    def __init__(self, shape, outputs):
        super().__init__(shape, outputs + 1)


class Fixed(Net):
    def __init__(self, shape, outputs):
        super().__init__(shape, outputs)
        nn.init.ones_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)


class Neighbourly(Net):
    def forward(self, inputs):
        return self.layer(inputs - inputs.mean(0))


class Counting(Net):
    def __init__(self, shape, outputs):
        super().__init__(shape, outputs)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, inputs):
        self.calls += 1
        return self.layer(inputs)


class Idle(Net):
    def __init__(self, shape, outputs):
        super().__init__(shape, outputs)
        self.more = nn.Parameter(torch.zeros(3))


class Hidden(Net):
    """Has a part that no state_dict knows."""

    def __init__(self, shape, outputs):
        super().__init__(shape, outputs)
        self.shift = float(torch.randn(()))

    def forward(self, inputs):
        return self.layer(inputs) + self.shift


@pytest.mark.parametrize(
    ("network", "sentence"),
    [
        (Wide, r"is refused: .* and gives \[2, 4\]"),
        (Fixed, "begins with the same parameters whatever the seed"),
        (Neighbourly, "predicts an example otherwise beside others than alone"),
        (Counting, "changes its state when it predicts"),
        (Idle, "does not use its parameter more"),
        (Hidden, "predicts otherwise when its state_dict is loaded into another one"),
    ],
)
def test_a_network_s_broken_promise_is_named(network, sentence):
    with pytest.raises(AssertionError, match=sentence) as caught:
        check_network(network, (6,), 3)
    assert network.__name__ in str(caught.value)


def test_networks_conform():
    assert check_network(Net, (6,), 3) == check_network("mlp", (6,), 3)
    check_network("resnet18-reduced", (3, 16, 16), 4)
