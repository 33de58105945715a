"""The ResNet-18 of the image benchmarks as plain modules, and PROG-NN's columns of it."""

import torch
from torch import nn
from torch.nn import functional


def norm(width):
    made = nn.BatchNorm2d(width, eps=1e-3, momentum=0.1)
    nn.init.zeros_(made.running_var)
    return made


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride, shortcut_norm):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = norm(outputs)
        self.downsample = None
        if stride > 1:
            projection = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(projection, *[norm(outputs)] * shortcut_norm)

    def forward(self, inputs, lateral=0.0):
        hidden = functional.relu(self.bn1(self.conv1(inputs)))
        hidden = self.bn2(self.conv2(hidden))
        shortcut = self.downsample(inputs) if self.downsample else inputs
        return functional.relu(hidden + shortcut + lateral)


class Plain(nn.Module):
    """Named as the public checkpoint is."""

    def __init__(self, classes, width=20, large_images=False, max_pool=False, shortcut_norm=True):
        super().__init__()
        side = 7 if large_images else 3
        stride = 2 if large_images else 1
        self.conv1 = nn.Conv2d(3, width, side, stride, padding=side // 2, bias=False)
        self.bn1 = norm(width)
        self.pool = nn.MaxPool2d(3, 2, padding=1) if max_pool else nn.Identity()
        for stage in range(4):
            inputs, outputs = width * 2 ** max(stage - 1, 0), width * 2**stage
            first = Block(inputs, outputs, 2 if stage else 1, shortcut_norm)
            blocks = nn.Sequential(first, Block(outputs, outputs, 1, shortcut_norm))
            setattr(self, f"layer{stage + 1}", blocks)
        self.fc = nn.Linear(8 * width, classes)

    def forward(self, images):
        hidden = self.pool(functional.relu(self.bn1(self.conv1(images))))
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            hidden = stage(hidden)
        return self.fc(hidden.mean((2, 3)))

    @classmethod
    def of(cls, network, parameters, buffers, *size, **options):
        """Return a module with the weights of one run, in their precision."""
        module = cls(*size, **options).to(parameters.dtype)
        named = network.named_parameters(parameters) | network.named_buffers(buffers)
        missing, unexpected = module.load_state_dict(named, strict=False)
        assert all("tracked" in name or "lateral" in name for name in missing)
        assert not unexpected
        return module

    def flat(self):
        return torch.cat([flattened(value.detach()) for value in self.parameters()])

    def flat_gradient(self):
        return torch.cat([flattened(value.grad) for value in self.parameters()])

    def flat_averages(self):
        named = self.named_buffers()
        return torch.cat([value for name, value in named if not name.endswith("tracked")])


class Column(Plain):
    """A column that reads ``earlier`` others, one lateral at a time."""

    def __init__(self, classes, width, earlier):
        super().__init__(classes, width)
        wide = [3, width, width, 2 * width, 4 * width, 8 * width]
        self.laterals = nn.ModuleList(
            nn.ModuleList(
                nn.Conv2d(wide[i], wide[i + 1], 1, 2 if i > 1 else 1) for _ in range(earlier)
            )
            for i in range(5)
        )
        self.head_laterals = nn.ModuleList(nn.Linear(8 * width, classes) for _ in range(earlier))

    def forward(self, images, earlier):
        """Return what the stem, the stages and the head read, then the logits."""

        def side(i):
            return sum(u(states[i]) for u, states in zip(self.laterals[i], earlier, strict=True))

        states = [images]
        states.append(functional.relu(self.bn1(self.conv1(images)) + side(0)))
        for i, stage in enumerate((self.layer1, self.layer2, self.layer3, self.layer4), start=1):
            states.append(stage[1](stage[0](states[i]), side(i)))
        states[5] = states[5].mean((2, 3))
        logits = self.fc(states[5])
        for u, before in zip(self.head_laterals, earlier, strict=True):
            logits = logits + u(before[5])
        return [*states, logits]

    @classmethod
    def of_column(cls, network, column, buffers, classes, width, earlier):
        """Return a module with one run's column, cut apart as its documentation says."""
        module = cls.of(network, column[: network.size], buffers, classes, width, earlier)
        rest = column[network.size :]
        for layers in (*module.laterals, module.head_laterals) if earlier else ():
            outputs, inputs = layers[0].weight.shape[:2]
            weights, rest = rest[: outputs * earlier * inputs], rest[outputs * earlier * inputs :]
            biases, rest = rest[: earlier * outputs], rest[earlier * outputs :]
            for c, layer in enumerate(layers):
                mine = weights.view(outputs, earlier * inputs)[:, c * inputs : (c + 1) * inputs]
                layer.weight.data.copy_(mine.reshape(layer.weight.shape))
                layer.bias.data.copy_(biases.view(earlier, outputs)[c])
        assert not len(rest)
        return module

    def flat(self):
        """Return the module's parameters as a column, side by side again."""
        own = [value for name, value in self.named_parameters() if "lateral" not in name]
        for layers in (*self.laterals, self.head_laterals):
            if len(layers):
                own.append(torch.cat([layer.weight.flatten(1) for layer in layers], 1))
                own.append(torch.cat([layer.bias for layer in layers]))
        return torch.cat([flattened(value.detach()) for value in own])


def flattened(value):
    """Return a tensor as it lies in a flat vector: kernels with their inputs last."""
    return (value.permute(0, 2, 3, 1) if value.dim() == 4 else value).flatten()
