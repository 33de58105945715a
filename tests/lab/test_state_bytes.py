"""What a method holds beyond its parameters, counted by hand in vectors of the network's size."""

import pytest
import torch

from engram.lab.methods import method_entry
from engram.lab.networks import ResNet
from engram.testing import Subject

# w* and 2 λ Ω of every penalty; F and s; ω and Ω; Ω; F, s, ω, the score, S and w_last.
VECTORS = {
    **dict.fromkeys(("van", "multi-task", "er", "a-gem", "gem", "mega-i", "mega-ii", "mer"), 0),
    **{"icarl": 0, "prog-nn": 0, "ewc": 2 + 2, "pi": 2 + 2, "mas": 2 + 1, "rwalk": 2 + 6},
}


@pytest.mark.parametrize("name", VECTORS)
def test_the_state_is_so_many_vectors(name):
    entry = method_entry(name)
    method = Subject(entry, entry.settings()).fresh_run().method
    width = method.parameters.element_size() * method.parameters.shape[1]
    facts = method.facts()
    assert facts["state_bytes"] == VECTORS[name] * width
    assert facts["parameters"] == method.parameters.shape[1]


def test_it_is_what_a_checkpoint_holds_but_for_parameters():
    entry = method_entry("rwalk")
    method = Subject(entry, entry.settings()).fresh_run().method
    state = {key: value for key, value in method.state_dict().items() if key != "parameters"}
    held = sum(value.nbytes for value in state.values() if isinstance(value, torch.Tensor))
    assert method.facts()["state_bytes"] == held // len(method.parameters)


def test_running_averages_are_counted():
    network = ResNet(10, 2)
    assert network.buffer_size > 0
    method = method_entry("van").build.__new__(method_entry("van").build)
    method.network, method.parameters = network, torch.zeros(3, network.size)
    method.buffers, method.optimizer = torch.zeros(3, network.buffer_size), None
    assert method.facts()["state_bytes"] == 4 * network.buffer_size
