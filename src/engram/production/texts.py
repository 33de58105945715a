"""Texts by a local Hugging Face encoder (extra ``text``): nothing is downloaded or trusted."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engram.errors import EngramError
from engram.files import replacement

# What says how an encoder is built and how it reads texts; its weights become the version's.
_FILES = (
    *("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "added_tokens.json"),
)
_NEEDED = ("config.json", "tokenizer.json")
_WEIGHTS = "model.safetensors"


def _transformers() -> Any:  # noqa: ANN401 (it may not be installed)
    try:
        import transformers
    except ImportError:
        raise EngramError(
            "A network hf:DIR needs transformers, which is not installed: "
            'pip install "engram-torch[text]".'
        ) from None
    return transformers


class TextClassifier(nn.Module):
    """An encoder, the mean of its last layer over the tokens of a text, and a linear head.

    Inputs are numbers of tokens plus 1, int64 [B, length]; 0 is where a text has ended.
    """

    def __init__(self, encoder: nn.Module, width: int, outputs: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(width, outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits [B, outputs]."""
        tokens = _without_padding(tokens)
        mask = (tokens > 0).long()
        hidden = self.encoder(input_ids=(tokens - 1).clamp(min=0), attention_mask=mask)[0]
        weights = mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weights).sum(1) / weights.sum(1).clamp(min=1)
        logits: Tensor = self.head(mean)
        return logits


def _without_padding(tokens: Tensor) -> Tensor:
    """Return the columns up to the end of the longest text, at least one, where they are on a CPU.

    On a GPU the host would wait to know how many; what is exported has them all.
    """
    if tokens.is_cuda or torch.compiler.is_compiling():
        return tokens
    return tokens[:, : max(1, int((tokens > 0).sum(1).max()))] if len(tokens) else tokens


def copy_encoder(source: Path, target: Path) -> list[Path]:
    """Copy what an encoder is built from and reads texts with; return the files."""
    missing = [name for name in (*_NEEDED, _WEIGHTS) if not (source / name).is_file()]
    if missing:
        raise EngramError(
            f"hf: must be followed by a folder with {', '.join((*_NEEDED, _WEIGHTS))}, and "
            f"{str(source)!r} lacks {', '.join(missing)}."
        )
    target.mkdir(parents=True, exist_ok=True)
    copied = []
    for name in _FILES:
        if (source / name).is_file():
            with replacement(target / name, 0o600) as part:
                shutil.copyfile(source / name, part)
            copied.append(target / name)
    return copied


def build_classifier(folder: Path, outputs: int) -> nn.Module:
    """Return a classifier whose encoder is as the configuration in a folder says, undrawn."""
    hugging = _transformers()
    try:
        config = hugging.AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        encoder = hugging.AutoModel.from_config(config, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise EngramError(f"{str(folder)!r} is no encoder that transformers knows: {error}.") from (
            error
        )
    for name in ("pooler",):  # it is not used, and would be a parameter without a gradient
        if getattr(encoder, name, None) is not None:
            setattr(encoder, name, None)
    return TextClassifier(encoder.float(), int(config.hidden_size), outputs)


def load_pretrained(network: nn.Module, source: Path) -> None:
    """Put the weights of a folder's encoder into a new classifier."""
    assert isinstance(network, TextClassifier)
    hugging = _transformers()
    encoder = hugging.AutoModel.from_pretrained(
        source, local_files_only=True, trust_remote_code=False, use_safetensors=True
    )
    held = {name: value.float() for name, value in encoder.state_dict().items()}
    own = network.encoder.state_dict()
    network.encoder.load_state_dict({name: held[name] for name in own})


def tokeniser(folder: Path) -> Callable[[Sequence[str], int], Tensor]:
    """Return what makes of texts the numbers of their tokens, plus 1, int32 [n, length]."""
    found: list[Any] = []  # read when the first text is

    def tokenise(texts: Sequence[str], length: int) -> Tensor:
        if not found:
            found.append(
                _transformers().AutoTokenizer.from_pretrained(
                    folder, local_files_only=True, trust_remote_code=False
                )
            )
        made = torch.zeros(len(texts), length, dtype=torch.int32)
        given = found[0](list(texts), truncation=True, max_length=length)["input_ids"]
        for row, numbers in enumerate(given):
            made[row, : len(numbers)] = torch.tensor(numbers, dtype=torch.int32) + 1
        return made

    return tokenise
