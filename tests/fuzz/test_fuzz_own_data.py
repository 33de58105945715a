"""Tables and folders of images as people have them: tasks, or one sentence."""

import io
import itertools

import pytest
from fuzz_cases import attempt, generated, refused
from fuzz_files import changes, damaged
from hypothesis import strategies as st
from PIL import Image

from engram.lab import protocol

DATES = ["2024-01-01", "2024-02", "2024", "0001-01-01", "9999-12-31T23:59:59+00:00", "2024-13-01"]
DATES += ["0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00"]
CELLS = ["0", "1", "1", "2", "a", "b", "", "?", "nan", "inf", "-1", "1e999", "9" * 5000, "x" * 5000]
CELLS += [*DATES, "٣", "é", "a,b", 'a"b', "a\nb", "\0", "\x1b"]
COLUMNS = ["y", "t", "d", "x"]
WHOLE = "y,t,d,x\n" + "".join(f"{'ab'[n % 2]},{n // 6},2024-0{n // 6 + 1},{n}\n" for n in range(24))
numbers = itertools.count()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("own")


cells = st.sampled_from(CELLS)
row = st.tuples(*(st.sampled_from(usual) | cells for usual in ("ab", "01", DATES, "12")))
rows = st.just([]) | st.lists(row, max_size=3)
names = st.sampled_from([*COLUMNS * 2, "", "no such", "y,x", "\n", "é"])
told = st.fixed_dictionaries(
    {"target": st.sampled_from(["y"] * 9 + ["d", ""])},
    optional={
        "time": st.just("d") | st.just("d") | names,
        "period": st.sampled_from(["equal", "year", "quarter", "month", "week"] * 2 + ["x"]),
        "parts": st.sampled_from(["1", "2", "3", "4"] * 4 + ["0", "2147483648", "x"]),
        "ignore": st.just("x") | names,
        "categories": st.just("x") | names,
        "test_share": st.sampled_from(["0.5"] * 9 + ["0.9", "0", "nan"]),
    },
)


def _specified(benchmark, overrides):
    """A spec that knows its tasks and what its data is filed under."""
    spec = protocol.specify(benchmark, "van", overrides={"batch_size": "1", **overrides})
    return spec, spec.identity()


def _check(benchmark, overrides):
    made = attempt(lambda: _specified(benchmark, overrides))
    if not refused(made):
        assert made[0].tasks >= 1
        assert made[0].examples >= 1


def _table(rows, delimiter):
    quoted = [delimiter.join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows]
    return (WHOLE.replace(",", delimiter) + "\n".join(quoted)).encode()


targets = st.sampled_from(["x", "x,t", "t", "y", "d", "x,x", ",", "x,no such", ""])
of_tasks = st.fixed_dictionaries(
    {"target": targets, "target_kind": st.sampled_from(["labels", "numbers", "classes", "x"])},
    optional={
        "task": st.sampled_from(["t", "x"]),
        "parts": st.sampled_from(["1", "2", "3", "x"]),
        "heads": st.sampled_from(["shared", "by-task"]),
        "scenario": st.sampled_from(
            ["class-incremental", "task-incremental", "domain-incremental"]
        ),
        "boundaries": st.sampled_from(["none", "none", "tasks", "x"]),
        "patience": st.sampled_from(["0", "1", "-1", "1e9", "x"]),
        "held_out": st.sampled_from(["0.1", "0.5", "0", "1", "nan"]),
        "ignore": st.sampled_from(["d", "x", "y,d"]),
    },
)


@generated(
    150,
    rows=rows,
    told=of_tasks,
    method=st.sampled_from(["van", "er", "ewc", "icarl", "mer", "der"]),
    passes=st.sampled_from([1, 1, 2, 100, 101, 0, -1]),
)
def test_labels_numbers_scenarios_and_passes_are_taken_or_refused(
    place, rows, told, method, passes
):
    path = place / f"{next(numbers)}.csv"
    path.write_bytes(_table(rows, ","))
    given = {"batch_size": "1", **told}
    attempt(lambda: protocol.specify(f"table:{path}", method, overrides=given, passes=passes))
    path.unlink()


@generated(
    250,
    rows=rows,
    delimiter=st.sampled_from(",;\t|"),
    encoding=st.sampled_from(["utf-8"] * 5 + ["utf-8-sig", "utf-16", "latin-1"]),
    changes=st.just([]) | st.just([]) | changes,
    told=told,
)
def test_a_table_is_tasks_or_refused(place, rows, delimiter, encoding, changes, told):
    text = _table(rows, delimiter).decode().encode(encoding, "replace")
    path = place / f"{next(numbers)}.csv"  # what was read of a name is remembered
    path.write_bytes(damaged(text, changes))
    _check(f"table:{path}", told if "time" in told else {**told, "task": "t"})
    path.unlink()


def _image(mode, size, kind):
    made = io.BytesIO()
    Image.new(mode, size).save(made, kind)
    return made.getvalue()


IMAGES = [_image("RGB", (3, 2), "PNG"), _image("RGB", (5, 5), "JPEG"), _image("L", (1, 1), "GIF")]
IMAGES += [
    _image("I;16", (2, 2), "PNG"),
    _image("P", (2, 9), "PNG"),
    _image("RGBA", (2, 2), "WEBP"),
]
IMAGES += [b"", b"not an image"]
FOLDERS = [
    "a",
    "b",
    "a/c",
    "train/a",
    "test/a",
    "é",
    "a\nb",
    "9" * 200,
    "\udcff",
    ".hidden",
    "10",
    "9",
]
FILES = [
    "1.png",
    "2.png",
    "3.JPG",
    "4.gif",
    "x.txt",
    "\udcff.png",
    "a\nb.png",
    ".hidden.png",
    "5.webp",
]
images = st.dictionaries(
    st.tuples(st.sampled_from(FOLDERS), st.sampled_from(FILES)),
    st.builds(damaged, st.sampled_from([*IMAGES[:3] * 9, *IMAGES]), st.just([]) | changes),
    max_size=3,
)


@generated(
    70,
    images=images,
    settings=st.fixed_dictionaries(
        {},
        optional={
            "size": st.sampled_from(["16"] * 8 + ["15", "99999999", "x"]),
            "classes_per_task": st.sampled_from(["1", "2", "3"] * 3 + ["0"]),
        },
    ),
)
def test_a_folder_is_tasks_or_refused(tmp_path_factory, monkeypatch, images, settings):
    place = tmp_path_factory.mktemp("photos")
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    learnable = {(folder, name): IMAGES[0] for folder in "ab" for name in ("1.png", "2.png")}
    for (folder, name), content in (learnable | images).items():
        (place / "own" / folder).mkdir(parents=True, exist_ok=True)
        (place / "own" / folder / name).write_bytes(content)
    _check(f"folder:{place / 'own'}", {"size": "16", **settings})
    assert not list((place / "cache").rglob(".*"))
