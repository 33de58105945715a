"""Networks of somebody's own, as files."""

import itertools

_numbers = itertools.count()  # a module's name is its file's: no two are alike

HEAD = """
import torch
from torch import nn
from torch.nn import functional as F
"""

TINY = f"""{HEAD}
class Tiny(nn.Module):
    def __init__(self, shape, outputs, width=5):
        super().__init__()
        self.hidden, self.head = nn.Linear(shape[0], width), nn.Linear(width, outputs)

    def forward(self, inputs):
        return self.head(torch.tanh(self.hidden(inputs)))
"""


def write_network(folder, source=TINY, name="network"):
    """Write a module of a network's, whose name no other has, and return its path."""
    file = folder / f"{name}_{next(_numbers)}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    return file
