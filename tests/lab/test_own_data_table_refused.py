"""A table of one's own: which files are read, and what is refused in them."""

import tracemalloc

import pytest
from own_streams import USUAL
from own_streams import table_spec as spec
from own_worlds import read_csv, write_csv

from engram.errors import EngramError
from engram.lab.benchmarks import benchmark, table
from engram.lab.data import read_table
from engram.lab.protocol import specify


@pytest.mark.parametrize("delimiter", list(",;\t|"))
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_csv_may_be_of_any_usual_kind(tmp_path, delimiter, encoding):
    lines = [["0", " Ålesund ", ""], ["1", 'a "b"', "N/A"], [], ["2", f"x{delimiter}y", "null"]]
    path = write_csv(tmp_path / "t.csv", ["", "one", "two"], lines, delimiter, encoding)
    assert read_table(path) == {
        "one": ["Ålesund", 'a "b"', f"x{delimiter}y"],
        "two": ["", "", ""],
    }


@pytest.mark.parametrize(("delimiter", "others"), [(",", "a; b; c; d"), (";", "a, b, c, d")])
def test_a_header_in_quotes_may_hold_what_is_between_the_values_elsewhere(
    tmp_path, delimiter, others
):
    path = tmp_path / "t.csv"
    path.write_text(f'"one"{delimiter}"{others}"\n"1"{delimiter}"2"\n')
    assert read_table(path) == {"one": ["1"], others: ["2"]}


def test_parquet_is_read_as_the_same_csv_is(tmp_path, sales):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import csv, parquet

    table = csv.read_csv(sales)  # which finds dates, numbers and texts
    parquet.write_table(table, tmp_path / "sales.parquet")
    assert spec(tmp_path / "sales.parquet").tasks == spec(sales).tasks
    assert read_table(tmp_path / "sales.parquet")["letter"] == read_table(sales)["letter"]
    nested = pyarrow.table({"x": [[1], [2]]})
    parquet.write_table(nested, tmp_path / "nested.parquet")
    with pytest.raises(EngramError, match="must hold texts, numbers or times, not a list"):
        read_table(tmp_path / "nested.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"no table")
    with pytest.raises(EngramError, match="is no Parquet file"):
        read_table(tmp_path / "broken.parquet")


def test_without_pyarrow_parquet_says_how_to_have_it(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    (tmp_path / "t.parquet").write_bytes(b"")
    with pytest.raises(EngramError, match=r"pip install 'engram-torch\[tables\]'"):
        read_table(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"target": ""}, r"the column to predict \(--set target=…\); the columns are day, w"),
        ({"target": "buoght"}, r"no column for target called 'buoght' \(did you mean 'bought'\?\)"),
        ({"time": ""}, "task or time, one of them, must name the column that says .*; the co"),
        ({"task": "letter"}, "task or time, one of them, must name the column"),
        (
            {"ignore": "width, depth"},
            "no column for ignore called 'depth'.*valid are bought, day, ",
        ),
        ({"target": "width"}, "target must be a column of classes, and 'width' has 2.. different"),
        ({"time": "letter"}, "Column 'letter' must hold dates like 2024-12-31 or times .* row 1.$"),
        (
            {"time": "width"},
            r"period must be equal \(--set period=equal\) .*'width' is, not 'quarter",
        ),
        ({"ignore": "width,height,letter"}, "No column is left to predict 'bought' from"),
        ({"period": "equal", "parts": "500"}, "parts must be fewer than 500 for column 'day'"),
        ({"period": "equal", "parts": str(10**9)}, "parts must be fewer than 1000000000 for col"),
        ({"period": "decade"}, "valid are equal, month, quarter, week, year"),
        ({"batch_size": "49"}, "batch_size must be at most the 48 examples of a task, not 49"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(sales, settings, sentence):
    with pytest.raises(EngramError, match=sentence) as caught:
        spec(sales, **settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda lines: lines[6].__setitem__(4, ""), "Every row must have a target, and data row 7"),
        (lambda lines: lines[6].__setitem__(0, "?"), "Every row must have a time, and data row 7"),
        (lambda lines: lines[6].__setitem__(1, "wide"), "Column 'width' is of numbers, but data r"),
        (
            lambda lines: lines[6].__setitem__(1, "inf"),
            "data row 7 has 'inf'.*categories=width",
        ),
        (lambda lines: lines[6].append("more"), "has 6 values in line 8, where its header has 5"),
        (lambda lines: lines.clear(), "has no rows under a header"),
        (lambda lines: [line.__setitem__(4, "n") for line in lines], "must have two classes"),
        (
            lambda lines: lines.append(["2029-01-01", "1", "1", "a", "n"]),
            "The task '2029-Q1' of .*sales.csv has nothing to test on, for no class has two examp"
            "les: take a longer period, or equal parts",
        ),
    ],
)
def test_bad_tables_are_refused_in_one_sentence(sales, change, sentence):
    header, lines = read_csv(sales)
    change(lines)
    write_csv(sales, header, lines)
    with pytest.raises(EngramError, match=sentence) as caught:
        spec(sales)
    assert "\n" not in str(caught.value)


def parquet_of(path, **columns):
    """Write a table with these columns beside usual ones."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = 24
    usual = {"task": [row // 12 for row in range(rows)], "x": list(range(rows))}
    usual["y"] = [str(row % 2) for row in range(rows)]
    made = {
        name: pyarrow.array(values * (rows // 2), kind) for name, (values, kind) in columns.items()
    }
    parquet.write_table(pyarrow.table({**usual, **made}), path)
    return path


@pytest.mark.parametrize(
    ("kind", "values", "reason"),
    [
        ("time64[ns]", [1, 2_000_000_001], "must hold texts, numbers or times, not a time of day"),
        ("time32[s]", [1, 2], "must hold texts, numbers or times, not a time of day"),
        ("duration[ns]", [1, 2], "must hold texts, numbers or times, not a duration"),
        ("date32", [0, 4_000_000], "a date in it is before the year 1 or after 9999"),
        ("date32", [0, -4_000_000], "a date in it is before the year 1 or after 9999"),
        ("timestamp[us]", [0, 2**60], "a date in it is before the year 1 or after 9999"),
        # which in microseconds is 2^64 and 10 more, so that it could be taken for 1970
        ("timestamp[s]", [0, 18446744073720], "a date in it is before the year 1 or after 9999"),
        ("Mars/Base", [0, 1], "its time zone 'Mars/Base' is not known here"),
        ("binary", [b"a", b"b"], "must hold texts, numbers or times, not a bytes"),
    ],
)
def test_values_of_parquet_that_nothing_can_be_made_of_name_their_column(
    tmp_path, kind, values, reason
):
    pyarrow = pytest.importorskip("pyarrow")
    kinds = {
        "time64[ns]": pyarrow.time64("ns"),
        "time32[s]": pyarrow.time32("s"),
        "duration[ns]": pyarrow.duration("ns"),
        "date32": pyarrow.date32(),
        "timestamp[us]": pyarrow.timestamp("us"),
        "timestamp[s]": pyarrow.timestamp("s"),
        "Mars/Base": pyarrow.timestamp("us", "Mars/Base"),
        "binary": pyarrow.binary(),
    }
    path = parquet_of(tmp_path / "t.parquet", strange=(values, kinds[kind]))
    usual = {"target": "y", "task": "task"}
    with pytest.raises(EngramError) as caught:
        specify(f"table:{path}", "van", overrides=usual)
    sentence = str(caught.value)
    assert sentence.startswith(f"Column 'strange' of {str(path)!r} ")
    assert reason in sentence
    assert sentence.endswith("leave it out with --set ignore=strange.")
    assert specify(f"table:{path}", "van", overrides={**usual, "ignore": "strange"}).tasks == 2


def test_other_texts_of_parquet_are_refused_in_one_sentence(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    ends = pyarrow.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0")
    broken = pyarrow.Array.from_buffers(
        pyarrow.string(), 2, [None, ends, pyarrow.py_buffer(b"a\xff")]
    )
    parquet.write_table(pyarrow.table({"x": broken}), tmp_path / "t.parquet")
    with pytest.raises(
        EngramError, match=r"Column 'x' of .* a text in it is not UTF-8: leave it out"
    ):
        read_table(tmp_path / "t.parquet")
    twice = pyarrow.Table.from_arrays([pyarrow.array([1]), pyarrow.array([2])], names=["x", "x"])
    parquet.write_table(twice, tmp_path / "t.parquet")
    with pytest.raises(EngramError, match="has the column 'x' twice"):
        read_table(tmp_path / "t.parquet")


def test_times_of_parquet_are_read_by_any_unit(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    for unit, value in (("s", 86_400), ("ms", 86_400_000), ("us", 86_400 * 10**6)):
        kind = pyarrow.timestamp(unit)
        path = parquet_of(tmp_path / "t.parquet", time=([value, None], kind))
        assert read_table(path)["time"][:2] == ["1970-01-02T00:00:00", ""]
    path = parquet_of(tmp_path / "t.parquet", time=([1_000_000_123, 1], pyarrow.timestamp("ns")))
    assert read_table(path)["time"][:2] == ["1970-01-01T00:00:01", "1970-01-01T00:00:00"]


def test_columns_of_too_many_texts_are_refused_before_memory_is_taken(tmp_path, monkeypatch):
    """Forty of them, of 900 texts each, would be 4 GiB for 30,000 rows."""
    header = ["task", "y", *(f"name {number}" for number in range(10))]
    lines = [[row // 2000, row % 2, *([f"v{row % 1000}"] * 10)] for row in range(4_000)]
    path = write_csv(tmp_path / "t.csv", header, lines)
    usual = {"target": "y", "task": "task"}
    monkeypatch.setattr(table, "_MOST_BYTES", 4 * 4_000 * 1_009)
    tracemalloc.start()
    with pytest.raises(EngramError) as caught:
        specify(f"table:{path}", "van", overrides=usual)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000_000  # of the 154 MB that they would take
    assert str(caught.value) == (
        "The texts would become 9,610 columns of 0 and 1, of which 4,000 rows have room for 1,009: "
        "take fewer with --set most_categories=50, or leave columns out with --set ignore=…, first "
        "of all 'name 0' with 960, 'name 1' with 960, 'name 2' with 960."
    )
    assert specify(f"table:{path}", "van", overrides={**usual, "most_categories": "50"}).tasks == 2
    assert specify(f"table:{path}", "van", overrides={**usual, "ignore": ",".join(header[3:])})


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("t.xlsx", b"", "A table is a file .csv, .tsv, .txt or .parquet, not '.*t.xlsx'"),
        ("t.csv", None, "t.csv' cannot be read: No such file or directory"),
        ("t.csv", b"", "t.csv' is empty"),
        ("t.csv", b"\xef\xbb\xbf", "t.csv' is empty"),
        ("t.csv", b"a,b\n", "t.csv' has no rows under a header"),
        (
            "t.csv",
            b"a,b\n\xc3\xa9,1\n\xe9,1\n",
            "in UTF-8, and line 3 is not: save it as CSV UTF-8",
        ),
        ("t.csv", "a,b\n1,1\n".encode("utf-16"), "in UTF-8, and line 1 is not: save it as CSV"),
        ("t.csv", b'a,b\n"1,1\n', "t.csv' is no CSV: unexpected end of data"),
        ("t.csv", b"a,a\n1,1\n", "t.csv' has the column 'a' twice"),
    ],
)
def test_bad_files_are_refused_in_one_sentence(tmp_path, name, content, sentence):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(EngramError, match=sentence):
        spec(tmp_path / name)


def test_there_is_nothing_to_tune_on(sales):
    with pytest.raises(EngramError, match="table-sales has no tasks to tune on"):
        specify(f"table:{sales}", "mega-i", overrides=USUAL, split="tuning")
    with pytest.raises(EngramError, match="table: must be followed by the path"):
        benchmark("table:")
