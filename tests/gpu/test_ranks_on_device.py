"""On a GPU: wrappers of torch.distributed over NCCL, of one process, and what ranks send."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import engram
from engram.gradients import Ranks, rank_share
from engram.memory import Fifo, Memory
from engram.rules import AGEM, GEM, MEGA1, MEGA2

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or not dist.is_nccl_available(), reason="needs a GPU and NCCL"
)

RULES = [MEGA1(), MEGA2(), AGEM(), GEM()]


def kind(rule):
    return type(rule).__name__


@pytest.fixture(scope="module", autouse=True)
def _group(tmp_path_factory):
    meeting = tmp_path_factory.mktemp("group") / "meeting"
    torch.cuda.set_device(0)
    dist.init_process_group(
        "nccl",
        init_method=f"file://{meeting}",
        rank=0,
        world_size=1,
        device_id=torch.device("cuda:0"),
    )
    yield
    dist.destroy_process_group()


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double().cuda()


def replicated():
    return DistributedDataParallel(network())


def in_parts(**options):
    model, mesh = network(), init_device_mesh("cuda", (1,))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def batch(seed):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(8, 5, generator=generator).double()
    return inputs.cuda(), torch.randint(3, (8,), generator=generator).cuda()


def learned(build, rule):
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=build is network)
    learner = engram.Learner(model, optimizer, rule, Memory(Fifo(100)), clip_norm=1.0)
    for step in range(10):
        mix = learner.observe(*batch(step), task=step // 4)
    learner.end_task()
    whole = [
        each.full_tensor() if isinstance(each, DTensor) else each for each in model.parameters()
    ]
    return [*(each.detach() for each in whole), mix.losses, mix.weights]


@pytest.mark.parametrize("rule", RULES, ids=kind)
@pytest.mark.parametrize("build", [replicated, in_parts], ids=lambda build: build.__name__)
def test_a_wrapped_model_takes_the_steps_of_the_model_itself(build, rule):
    for own, plain in zip(learned(build, rule), learned(network, rule), strict=True):
        torch.testing.assert_close(own, plain, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("build", [replicated, in_parts], ids=lambda build: build.__name__)
def test_a_mixer_mixes_what_a_wrapper_leaves(build):
    found = []
    for made in (build, network):
        model = made()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        mixer = engram.GradientMixer(optimizer, MEGA2())
        for step in range(3):
            for row, seed in (("memory", step + 50), ("current", step)):
                inputs, classes = batch(seed)
                loss = cross_entropy(model(inputs), classes) * rank_share(len(inputs))
                mixer.backward(loss, row=row)
            mixer.mix()
            optimizer.step()
        mixer.settle()
        found.append([each.detach() for each in model.parameters()])
    for own, plain in zip(*found, strict=True):
        whole = own.full_tensor() if isinstance(own, DTensor) else own
        torch.testing.assert_close(whole, plain, rtol=1e-10, atol=1e-10)


def test_a_policy_of_mixed_precision_leaves_whole_gradients():
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = in_parts(mp_policy=policy)
    learner = engram.Learner(
        model, torch.optim.SGD(model.parameters(), lr=0.1), MEGA2(), Memory(Fifo(100))
    )
    losses = [learner.observe(*batch(0)).losses[0] for _ in range(20)]
    learner.settle()
    assert losses[-1] < losses[0]


def test_what_ranks_send_each_other_travels_on_the_device():
    """The ranks of a group of one, made by hand: where there is one rank nothing is sent."""
    ranks = Ranks(dist.group.WORLD, MEGA2())
    held = [nn.Parameter(torch.ones(size, device="cuda")) for size in (3, 5)]
    rows = [[torch.full_like(each, factor) for each in held] for factor in (2.0, 3.0)]
    values = [torch.tensor(value, device="cuda") for value in (1.0, 4.0)]
    names, means, averaged = ranks.average_rows(
        ["current", "memory"], values, rows, held, held, absent=False
    )
    assert names == ["current", "memory"]
    assert torch.stack(means).tolist() == [1, 4]
    for row, factor in zip(averaged, (2.0, 3.0), strict=True):
        assert all((each == factor).all() for each in row)
    columns = [torch.arange(4, device="cuda"), torch.ones(4, 2)]
    (found,), told = ranks.gather(columns, {"ids": ["a"]})
    assert told == [{"ids": ["a"]}]
    assert all(map(torch.equal, found, columns))
