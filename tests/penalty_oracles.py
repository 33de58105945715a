"""EWC, PI, MAS and RWALK read slowly: one run, plain steps, autograd for every gradient."""

from itertools import pairwise

import torch
from torch.nn import functional

SIZES = (4, 3, 3)
BATCH, INTERVAL = 3, 4
RATE = 0.1


def logits_of(weights, inputs):
    hidden, start = inputs, 0
    for layer, (width, outputs) in enumerate(pairwise(SIZES)):
        matrix = weights[start : start + width * outputs].view(width, outputs)
        start += width * outputs
        if layer:
            hidden = functional.relu(hidden)
        hidden = hidden @ matrix + weights[start : start + outputs]
        start += outputs
    return hidden


def entropy(weights, inputs, labels):
    return functional.cross_entropy(logits_of(weights, inputs), labels)


def squared_length(weights, inputs):
    return (logits_of(weights, inputs) ** 2).sum()


def gradient_of(function, weights, *arguments):
    at = weights.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(function(at, *arguments), at)
    return gradient


def unit(values):
    """Scale to [0, 1] by the smallest and largest of all layers together."""
    low, high = min(values.tolist()), max(values.tolist())
    return values.new_tensor([(v - low) / (high - low + 1e-32) for v in values.tolist()])


class Slow:
    """loss + strength * sum over penalties of importance (w - star)^2, no 1/2, none in task 1."""

    def __init__(self, weights, strength, tasks):
        self.w, self.strength, self.tasks = weights.clone(), strength, tasks
        self.penalties = []  # pairs (importance, star)
        self.task_start = weights.clone()
        self.task = 0
        self.prepare()

    def penalised(self, weights, inputs, labels):
        total = entropy(weights, inputs, labels)
        for importance, star in self.penalties:
            total = total + self.strength * (importance * (weights - star) ** 2).sum()
        return total

    def learn(self, iteration, inputs, labels):
        own = gradient_of(entropy, self.w, inputs, labels)
        self.before(iteration, own)
        old = self.w
        self.w = old - RATE * gradient_of(self.penalised, old, inputs, labels)
        self.after(own, self.w - old)

    def finish(self, inputs, labels):
        self.task += 1
        self.inputs, self.labels = inputs, labels
        if self.task < self.tasks:  # no importance update after the last task
            self.penalties = [(self.importance(), self.w.clone())]
            self.task_start = self.w.clone()

    def zeros(self):
        return torch.zeros_like(self.w)

    def prepare(self): ...

    def before(self, iteration, own): ...

    def after(self, own, moved): ...


class SlowEwc(Slow):
    def prepare(self):
        self.fisher, self.squares = self.zeros(), self.zeros()

    def before(self, iteration, own):
        if (iteration + 1) % INTERVAL == 0:  # so the first window has INTERVAL - 1 gradients
            self.fisher = 0.1 * self.fisher + 0.9 * self.squares / INTERVAL
            self.squares = self.zeros()
        self.squares = self.squares + own**2

    def importance(self):
        self.squares = self.zeros()
        return unit(self.fisher)


class SlowKirkpatrick(Slow):
    """A penalty of its own for every task: F_k of single examples, around where task k ended."""

    def importance(self):
        fisher = self.zeros()
        for one, label in zip(self.inputs, self.labels, strict=True):
            fisher += gradient_of(entropy, self.w, one[None], label[None]) ** 2 / len(self.labels)
        return fisher

    def finish(self, inputs, labels):
        earlier = self.penalties
        super().finish(inputs, labels)
        if self.task < self.tasks:
            self.penalties = earlier + self.penalties


class SlowPi(Slow):
    textbook = False

    def prepare(self):
        self.path_integral, self.total = self.zeros(), self.zeros()

    def after(self, own, moved):
        self.path_integral = self.path_integral - own * moved

    def importance(self):
        share = self.path_integral / (1e-3 + (self.w - self.task_start) ** 2)
        self.total = self.total + (share if self.textbook else share.clamp(min=0))
        self.path_integral = self.zeros()
        return self.total


class SlowZenke(SlowPi):
    textbook = True


class SlowMas(Slow):
    def importance(self):
        total = self.zeros()  # reset each task
        for start in range(0, len(self.inputs), BATCH):
            part = self.inputs[start : start + BATCH]
            total += gradient_of(squared_length, self.w, part).abs()
        return total / len(self.inputs)


class SlowAljundi(Slow):
    def prepare(self):
        self.total = self.zeros()

    def importance(self):
        for one in self.inputs:
            gradient = gradient_of(squared_length, self.w, one[None])
            self.total = self.total + gradient.abs() / len(self.inputs)
        return self.total


class SlowRwalk(Slow):
    textbook = False

    def prepare(self):
        self.fisher, self.squares, self.path_integral = self.zeros(), self.zeros(), self.zeros()
        self.score, self.total, self.last = self.zeros(), self.zeros(), self.w.clone()

    def before(self, iteration, own):
        if (iteration + 1) % INTERVAL == 0:
            distance = self.fisher * (self.w - self.last) ** 2 * (0.5 if self.textbook else 1)
            self.score = self.score + (self.path_integral / (1e-3 + distance)).clamp(min=0)
            self.fisher = 0.1 * self.fisher + 0.9 * self.squares / INTERVAL
            self.last, self.path_integral = self.w, self.zeros()
            if self.textbook:
                self.squares = self.zeros()
        self.squares = self.squares + own**2

    def after(self, own, moved):
        self.path_integral = self.path_integral - own * moved

    def importance(self):
        if self.textbook:
            self.total = self.score if self.task == 1 else (self.total + self.score) / 2
        else:
            score = 2 * self.score if self.task == 1 else self.score
            self.total = 1.5 * self.total + 0.5 * score
        self.score, self.path_integral, self.squares = self.zeros(), self.zeros(), self.zeros()
        self.last = self.w
        return unit(self.total) + unit(self.fisher)


class SlowChaudhry(SlowRwalk):
    textbook = True


# Strengths that matter (the penalty's pull is of the gradient's size) and do not diverge.
READINGS = {
    ("ewc", "tables"): (SlowEwc, 0.5),
    ("ewc", "kirkpatrick"): (SlowKirkpatrick, 0.5),
    ("pi", "tables"): (SlowPi, 0.02),
    ("pi", "zenke"): (SlowZenke, 0.02),
    ("mas", "tables"): (SlowMas, 1.0),
    ("mas", "aljundi"): (SlowAljundi, 0.5),
    ("rwalk", "tables"): (SlowRwalk, 0.5),
    ("rwalk", "chaudhry"): (SlowChaudhry, 0.5),
}
