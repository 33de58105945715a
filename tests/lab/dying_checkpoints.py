"""Checkpoints of runs that die on their way."""

from engram.lab.protocol import Checkpoint


class Killed(Exception):
    pass


class Dying(Checkpoint):
    """Saves whenever it can, and dies after so many times."""

    lives = 10**9

    def save(self, *given):
        super().save(*given)
        self.lives -= 1
        if self.lives == 0:
            raise Killed


def checkpoint(tmp_path, kind=Checkpoint, *, lives=10**9, **options):
    lines = []
    made = kind(
        tmp_path / "saved" / "run.safetensors", **{"every": 0, "message": lines.append, **options}
    )
    made.lives, made.lines = lives, lines
    return made
