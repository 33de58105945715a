"""Where methods are run and compared."""

from __future__ import annotations

import re
from typing import NamedTuple

# Benchmarks whose tasks differ in size: AwA2's, and one's own data, named by ten digits of it.
_UNEVEN = re.compile(r"^split-awa$|-[0-9a-f]{10}$")


class Setting(NamedTuple):
    """Methods are compared where these agree."""

    benchmark: str
    tasks: int
    examples: int
    split: str = "training"
    stand_in: str = ""  # the label of what stands in for the benchmark's data, if anything does
    other: str = ""  # the name of data that is neither the paper's nor a listed stand-in

    @property
    def place(self) -> str:
        """The benchmark, and what it was run on where that is not its own data.

        >>> Setting("split-awa", 17, 3000, stand_in="50 classes of TinyImageNet").place
        'split-awa (stand-in: 50 classes of TinyImageNet)'
        """
        told = f"stand-in: {self.stand_in}" if self.stand_in else ""
        told += f"data {self.other}" if self.other else ""
        return f"{self.benchmark} ({told})" if told else self.benchmark

    @property
    def title(self) -> str:
        """What a reader calls it.

        >>> Setting("split-awa", 17, 3000).title
        'split-awa, 17 tasks of up to 3,000 examples'
        """
        kind = "" if self.split == "training" else f"{self.split} "
        most = "up to " if _UNEVEN.search(self.benchmark) else ""
        return f"{self.place}, {self.tasks:,} {kind}tasks of {most}{self.examples:,} examples"

    @property
    def slug(self) -> str:
        """What a file is called after it."""
        label = re.sub(r"[^a-z0-9]+", "-", self.stand_in.lower()).strip("-")
        kind = f"-stand-in-{label}" if label else f"-{self.other}" if self.other else ""
        kind += "" if self.split == "training" else f"-{self.split}"
        return f"{self.benchmark}{kind}-{self.tasks}x{self.examples}"
