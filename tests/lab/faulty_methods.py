"""Methods that break one promise of the conformance kit each, and what it says of them."""

import random
from dataclasses import dataclass

import numpy as np
import torch

from engram.errors import EngramError
from engram.gradients import Mix
from engram.lab.methods import Method, MethodSettings
from engram.lab.settings import setting


class Plain(Method):
    """A method without fault."""

    def observe(self, step, stored, batch):  # noqa: ARG002
        gradient = torch.empty_like(self.parameters)
        losses = self.rows.gradient(batch, gradient).unsqueeze(-1)
        self.rows.descend(gradient, self.settings.learning_rate)
        return Mix(losses, None, torch.ones_like(losses))


class NotANumber(Plain):
    def observe(self, step, stored, batch):
        mix = super().observe(step, stored, batch)
        return Mix(mix.losses / (step < 2), None, mix.weights)


class NoRows(Plain):
    def observe(self, step, stored, batch):
        mix = super().observe(step, stored, batch)
        return Mix(mix.losses[:, 0], None, mix.weights[:, 0])


class NeedsTwo(Plain):
    """Divides by what a batch of one does not have."""

    def observe(self, step, stored, batch):
        mix = super().observe(step, stored, batch)
        return Mix(mix.losses / (batch.labels.shape[1] - 1), None, mix.weights)


class Moody(Plain):
    draw = staticmethod(lambda: float(torch.rand(())))

    def observe(self, step, stored, batch):
        self.parameters.mul_(1 + 0.1 * self.draw())
        return super().observe(step, stored, batch)


class MoodyInNumpy(Moody):
    draw = staticmethod(lambda: float(np.random.rand()))


class MoodyInPython(Moody):
    draw = staticmethod(random.random)


class Neighbourly(Plain):
    def end_task(self, task, finished):  # noqa: ARG002
        self.parameters.copy_(self.parameters.mean(0, keepdim=True))


class ByPlace(Plain):
    """Draws by a run's place in the stack, not by its seed."""

    def end_task(self, task, finished):  # noqa: ARG002
        self.parameters.add_(0.1 * torch.arange(len(self.parameters)).unsqueeze(-1))


class Single(Plain):
    """Has numbers of its own that are always in single precision."""

    def observe(self, step, stored, batch):
        mix = super().observe(step, stored, batch)
        self.parameters.addmm_(
            torch.zeros(len(mix.losses), 1), torch.zeros_like(self.parameters[:1])
        )
        return mix


class Hoarder(Plain):
    """Keeps what it was shown without a copy."""

    def observe(self, step, stored, batch):
        if step == 0:
            self.first = batch
        super().observe(step, stored, self.first)
        return super().observe(step, stored, batch)


class Latecomer(Plain):
    def end_task(self, task, finished):  # noqa: ARG002
        self.before = finished

    def begin_task(self, task, labels):  # noqa: ARG002
        if task:
            seen = self.before.examples().inputs.float()
            self.parameters.add_(seen.mean((1, 2)).unsqueeze(-1), alpha=1e-4)


class Asker(Plain):
    ask = "train"

    def __init__(self, setup, settings):
        super().__init__(setup, settings)
        self.stream = setup.stream

    def end_task(self, task, finished):  # noqa: ARG002
        getattr(self.stream, self.ask)(task)


class Peeper(Asker):
    ask = "test"


class Meddler(Plain):
    def observe(self, step, stored, batch):
        batch.inputs.add_(0.1)
        return super().observe(step, stored, batch)


class Restless(Plain):
    def predict(self, inputs, columns, task):
        self.parameters.mul_(0.99)
        return super().predict(inputs, columns, task)


class Absorbed(Plain):
    """Learns at half its rate after every question."""

    asked = False

    def predict(self, inputs, columns, task):
        self.asked = True
        return super().predict(inputs, columns, task)

    def observe(self, step, stored, batch):
        before = self.parameters.clone()
        mix = super().observe(step, stored, batch)
        if self.asked:
            self.parameters.lerp_(before, 0.5)
        self.asked = False
        return mix


class Blind(Plain):
    def predict(self, inputs, columns, task):
        if columns is not None:
            inputs = torch.nn.functional.pad(inputs, (0, 2))
        return super().predict(inputs, None, task)


class OneAnswer(Plain):
    def predict(self, inputs, columns, task):
        return super().predict(inputs, columns, task).argmax(-1)


class Dependent(Plain):
    """Breaks where it is not told the task."""

    def predict(self, inputs, columns, task):
        return super().predict(inputs, columns, task + 0)


class Forgetful(Plain):
    """Refuses tasks that it has learned."""

    def predict(self, inputs, columns, task):
        if task == 0:
            raise EngramError("task must be another one, not 0.")
        return super().predict(inputs, columns, task)


class Heavy(Plain):
    """A momentum that no checkpoint knows of."""

    momentum = 0.0

    def observe(self, step, stored, batch):
        before = self.parameters.clone()
        mix = super().observe(step, stored, batch)
        self.parameters.add_(self.momentum)
        self.momentum = 0.5 * (self.parameters - before)
        return mix


class Entangled(Plain):
    def state_dict(self):
        return {"parameters": self.parameters, "buffers": self.buffers}


class Adopting(Plain):
    """Goes on working in the tensors that it was given to load."""

    def load_state_dict(self, state):
        self.parameters = self.rows.parameters = state["parameters"]


class Unsaveable(Plain):
    def state_dict(self):
        return super().state_dict() | {"rule": object()}


@dataclass(frozen=True)
class MemorySettings(MethodSettings):
    memory_size: int = setting(5, "examples in all", least=1)


class Insatiable(Plain):
    held = 0

    def observe(self, step, stored, batch):
        self.held += stored[0].nbytes + batch.labels[0].nbytes
        return super().observe(step, stored, batch)

    def facts(self):
        return super().facts() | {"memory_bytes": self.held}


class Talkative(Plain):
    """Claims what it does not hold: a value goes to the host in every step."""

    capturable = True
    read = staticmethod(lambda losses: losses.sum().item())

    def observe(self, step, stored, batch):
        mix = super().observe(step, stored, batch)
        self.read(mix.losses)
        return mix


class Counting(Plain):
    """Claims to be capturable, and does other work in every second step."""

    capturable = True

    def observe(self, step, stored, batch):
        self.parameters.mul_(0.9 if step % 2 else 1.0)
        return super().observe(step, stored, batch)


class CountingOpenly(Counting):
    def kind(self, step):
        return step % 2


class Wavering(Plain):
    """Claims what only columns that are frozen can hold."""

    settled = True


class WaveringLate(Wavering):
    """Learns nothing until the last task has ended."""

    def observe(self, step, stored, batch):  # noqa: ARG002
        losses = self.rows.gradient(batch, torch.empty_like(self.parameters)).unsqueeze(-1)
        return Mix(losses, None, torch.ones_like(losses))

    def end_task(self, task, finished):  # noqa: ARG002
        self.parameters.add_(0.1 if task == 3 else 0)


FAULTS = [
    (NotANumber, "has a loss that is not finite in step 2 of task 0"),
    (NoRows, r"returns losses \[2\] and weights \[2\] in step 0 of task 0"),
    (NeedsTwo, "not finite in step 2 of task 2"),
    (Moody, "other weights when it is run again with the same seeds"),
    (MoodyInNumpy, "other weights when it is run again with the same seeds"),
    (MoodyInPython, "other weights when it is run again with the same seeds"),
    (Neighbourly, "gives seed 3 another result alone than stacked"),
    (ByPlace, "gives seed 4 another result alone than stacked"),
    (Single, "not compute in the precision of its parameters, here float64: .+ dtype"),
    (Hoarder, "reads a batch after its step"),
    (Latecomer, "or a task after its end"),
    (Asker, "asks the stream for the training examples of task 0"),
    (Peeper, "asks the stream for the test examples of task 0"),
    (Meddler, "changes the inputs of the batch"),
    (Restless, "changes its weights when it predicts"),
    (Absorbed, "learns something else when it is asked for predictions in between"),
    (Blind, "does not read test inputs at the columns"),
    (OneAnswer, r"predicts logits of shape \[2, 5\], not \[2, 5, 3\]"),
    (Forgetful, "does not predict task 0, which it has seen"),
    (Dependent, "breaks where the task is not known"),
    (Heavy, "another result when it is saved after step 0 of task 0 and loaded"),
    (Entangled, "another result when it is saved|changes the state it saved"),
    (Adopting, "changes the state it saved after step 0 of task 0"),
    (Unsaveable, "more than tensors, arrays and JSON values"),
    (Insatiable, "no setting memory_size or memory_per_class"),
    (Wavering, "settled, but predicts task 0 otherwise after step 0 of task 1 than at its end"),
    (
        WaveringLate,
        "settled, but predicts task 0 otherwise after the end of task 3 than at its end",
    ),
    (Counting, "depend on more than their kind and position"),
    (Talkative, "a step of it reads from the device"),
]
