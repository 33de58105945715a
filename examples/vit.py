"""A small vision transformer."""

import torch
from torch import Tensor, nn

from engram.lab.networks import register


class ViT(nn.Module):
    """Patches of an image, embedded with their places, through a transformer; the mean is read."""

    def __init__(
        self,
        shape: tuple[int, ...],
        outputs: int,
        *,
        patch: int = 8,
        width: int = 64,
        depth: int = 2,
        heads: int = 4,
    ) -> None:
        super().__init__()
        channels, height, columns = shape
        self.embed = nn.Conv2d(channels, width, patch, stride=patch)
        places = (height // patch) * (columns // patch)
        self.places = nn.Parameter(0.02 * torch.randn(places, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.read = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, outputs))

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of images [B, channels, height, width]."""
        patches = self.embed(images).flatten(2).mT + self.places
        logits: Tensor = self.read(self.layers(patches).mean(1))
        return logits


register("vit", ViT)
