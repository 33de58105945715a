"""The child process of compare.py: makes Avalanche importable, and hands over to avalanche_agem.py.

torchvision's wheels are made for a CUDA build of torch, and beside a CPU build they do not find
their own operators. Nothing here calls one: two names are all that importing torchvision needs.
"""

from __future__ import annotations

import warnings

import torch


def import_torchvision() -> None:
    try:
        import torchvision  # type: ignore[import-not-found]  # noqa: F401
    except RuntimeError:
        for operator in ("nms", "qnms"):
            torch.library.define(
                f"torchvision::{operator}",
                "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
            )


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # Avalanche warns of extras that are missing and not needed
    import_torchvision()
    from avalanche_agem import main

    main()
