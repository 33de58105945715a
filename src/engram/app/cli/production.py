"""``engram train``, ``update``, ``predict``, ``history``, ``rollback``, ``erase``, ``adopt``.

Exit codes of ``update``: 0 accepted (or forced), 10 rejected, 11 undecided. Of all that change
something: 75 where another process holds the artefact's lock.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from engram.app.cli.options import (
    DeviceOption,
    JsonOption,
    NetworkSetOption,
    PluginOption,
    parse_settings,
    use_plugins,
)
from engram.app.cli.process import importing, on_stop, one_sentence
from engram.app.terminal import one_line
from engram.errors import EngramError

if TYPE_CHECKING:
    from engram.production import Result

REJECTED, UNDECIDED, LOCKED = 10, 11, 75

DataArgument = Annotated[
    str, typer.Argument(help="table:FILE, folder:FOLDER of images, or tensors:FILE.safetensors.")
]
ArtefactArgument = Annotated[Path, typer.Argument(help="The artefact's folder.")]
OutOption = Annotated[Path, typer.Option(metavar="FOLDER", help="Where the artefact is to be.")]
TrustOption = Annotated[
    bool, typer.Option("--trust-code", help="Run the code of the network's file.")
]
SettingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A setting, as often as you like; see train --help-settings.",
    ),
]
PeriodOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="What this data is called in reports.")
]
PassesOption = Annotated[int | None, typer.Option(help="Passes over the new data.")]


@contextmanager
def _command(plugins: Sequence[Path] | None = None) -> Iterator[None]:
    """Turn mistakes into sentences, and a lock that is held into 75."""
    with one_sentence():
        with importing():
            from engram.production import LockedError
        if plugins:
            use_plugins(plugins)
        try:
            yield
        except LockedError as error:
            print(f"engram: {error}", file=sys.stderr)
            raise typer.Exit(LOCKED) from None


def train(
    data: DataArgument,
    out: OutOption,
    network: Annotated[
        str | None,
        typer.Option(
            help="A registered name, FILE.py:name, or hf:DIR for texts; mlp, or resnet18-reduced "
            "for images, unless given."
        ),
    ] = None,
    network_set: NetworkSetOption = None,
    passes: PassesOption = None,
    memory: Annotated[int | None, typer.Option(help="Examples of the past that are kept.")] = None,
    settings: SettingOption = None,
    period: PeriodOption = None,
    trust_code: TrustOption = False,
    device: DeviceOption = "auto",
    plugin: PluginOption = None,
    json: JsonOption = False,
    help_settings: Annotated[
        bool, typer.Option("--help-settings", help="List the settings; train nothing.")
    ] = False,
) -> None:
    """Train a model on your data and keep it with its memory, as an artefact.

    Stopped, it goes on when it is given again.
    """
    with _command(plugin):
        from engram import production

        if help_settings:
            _list_settings()
            return
        given = _settings(settings, passes=passes, memory=memory)
        with on_stop("Stopped: the same command goes on from where it was saved."):
            result = production.train(
                data,
                out,
                network=network,
                arguments=parse_settings(network_set or (), "--network-set"),
                settings=given,
                period=period,
                trust_code=trust_code,
                device=device,
            )
        _show_first(result, out, as_json=json)


def adopt(
    network: Annotated[str, typer.Argument(help="FILE.py:name, or a registered name.")],
    weights: Annotated[Path, typer.Option(metavar="FILE", help="Its weights, as safetensors.")],
    data: Annotated[str, typer.Option(help="What its memory and its exam are made from.")],
    out: OutOption,
    network_set: NetworkSetOption = None,
    memory: Annotated[int | None, typer.Option(help="Examples of the past that are kept.")] = None,
    settings: SettingOption = None,
    period: PeriodOption = None,
    trust_code: TrustOption = False,
    device: DeviceOption = "auto",
    plugin: PluginOption = None,
    json: JsonOption = False,
) -> None:
    """Make an artefact of a model that was trained elsewhere."""
    with _command(plugin):
        from engram import production

        result = production.adopt(
            network,
            weights,
            data,
            out,
            arguments=parse_settings(network_set or (), "--network-set"),
            settings=_settings(settings, memory=memory),
            period=period,
            trust_code=trust_code,
            device=device,
        )
        _show_first(result, out, as_json=json)


def update(
    artefact: ArtefactArgument,
    data: DataArgument,
    gate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What is asked of the candidate, as TOML.")
    ] = None,
    slices: Annotated[
        list[str] | None,
        typer.Option("--slice", metavar="COLUMN", help="Examine each value of a column apart."),
    ] = None,
    schema: Annotated[
        str, typer.Option(help="keep: refuse other columns; extend: take them in.")
    ] = "keep",
    passes: PassesOption = None,
    settings: SettingOption = None,
    period: PeriodOption = None,
    force: Annotated[
        str | None, typer.Option(metavar="REASON", help="Let it answer whatever the gate says.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read the data and say what would be done.")
    ] = False,
    trust_code: TrustOption = False,
    device: DeviceOption = "auto",
    plugin: PluginOption = None,
    json: JsonOption = False,
) -> None:
    """Train a candidate on new data, examine it, and let it answer if the gate accepts it.

    Exit codes: 0 accepted, 10 rejected, 11 undecided, 75 stopped or locked. Stopped, it goes on
    when it is given again.
    """
    with _command(plugin):
        from engram import production
        from engram.app.cli.console import print_json

        given, wanted = _settings(settings, passes=passes), _schema(schema)
        judged = production.Gate.read(gate) if gate else production.Gate()
        if force is not None and not force.strip():
            raise EngramError("force must say why, as in --force 'the labels were corrected'.")
        if dry_run:
            plan = production.plan_update(
                artefact,
                data,
                gate=judged,
                slices=slices or (),
                schema=wanted,
                settings=given,
                trust_code=trust_code,
            )
            if json:
                print_json(vars(plan))
            else:
                print(
                    f"From version {plan.parent}: {plan.steps:,} steps over {plan.examples:,} "
                    f"examples; {plan.exam:,} are held out."
                )
                _print_notes(plan.notes)
            return
        with on_stop("Stopped: the same command goes on from where it was saved."):
            result = production.update(
                artefact,
                data,
                gate=judged,
                slices=slices or (),
                schema=wanted,
                settings=given,
                period=period,
                force=force or "",
                trust_code=trust_code,
                device=device,
            )
        _show_update(result, artefact, as_json=json)
        codes = {"accepted": 0, "rejected": REJECTED, "undecided": UNDECIDED}
        raise typer.Exit(0 if result.current == result.version else codes[result.verdict])


def predict(
    artefact: ArtefactArgument,
    data: DataArgument,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A CSV file; else it is printed.")
    ] = None,
    version: Annotated[int | None, typer.Option(help="Another version than the current.")] = None,
    trust_code: TrustOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Answer new data: predictions, probabilities, and the version that answered.

    An id or a class that a spreadsheet would read as a formula has an apostrophe before it.
    """
    with _command():
        from engram import production

        model = production.load(artefact, version, trust_code=trust_code, device=device)
        found = model.predict(data)
        text = _csv([found.header, *found.rows()])
        if out is None:
            print(text, end="")
            return
        from engram.files import whole_file

        with whole_file(out) as part:
            part.write_bytes(text.encode())
        print(f"Version {found.version} answered {len(found):,} examples: {one_line(out)}")


def history(
    artefact: ArtefactArgument,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page of all versions' reports.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the versions: where each comes from, what the gate said, which one answers."""
    with _command():
        from engram import production
        from engram.app.cli.console import print_json, stdout_console

        versions = production.history(artefact)
        if report is not None:
            from engram.files import whole_file

            page = production.history_page(artefact)
            with whole_file(report) as part:
                part.write_text(page, "utf-8")
        if json:
            print_json({"versions": versions})
            return
        rows = [
            [
                f"{each['version']}{' *' if each['current'] else ''}",
                each["how"] if each["parent"] is None else f"{each['how']} of {each['parent']}",
                each["period"],
                f"{each['examples']:,} + {each['exam']:,}",
                each["verdict"] + (" (forced)" if each["forced"] else ""),
            ]
            for each in versions
        ]
        heads = ["version", "how", "period", "trained on + exam", "gate"]
        stdout_console().print(_table(heads, rows))
        print("* answers now." if any(each["current"] for each in versions) else "None answers.")
        if report is not None:
            print(f"Report: {one_line(report)}")


def rollback(
    artefact: ArtefactArgument,
    to: Annotated[
        int | None, typer.Option(help="A version that has answered; the one before unless given.")
    ] = None,
    reason: Annotated[str, typer.Option(help="It is recorded.")] = "",
) -> None:
    """Let an earlier version answer again."""
    with _command():
        from engram import production

        number = production.rollback(artefact, to, reason)
        print(f"Version {number} answers now.")


def erase(
    artefact: ArtefactArgument,
    where: Annotated[
        str | None,
        typer.Option(metavar="COLUMN=VALUE", help="The examples with this tag, or this id."),
    ] = None,
    ids: Annotated[
        list[str] | None, typer.Option("--id", metavar="ID", help="An example by its id.")
    ] = None,
    block: Annotated[
        bool, typer.Option("--block", help="Leave them out of all later updates as well.")
    ] = False,
    reason: Annotated[str, typer.Option(help="It is recorded.")] = "",
    report: Annotated[
        bool, typer.Option("--report", help="Say what is gone, what is not, and where it was.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Erase examples from memories, exams, reports and categories of all versions, for ever.

    Weights that learned from them stay: --report says which.
    """
    with _command():
        from engram import production
        from engram.app.cli.console import print_json

        name, equals, value = (where or "").partition("=")
        if where is not None and not (name and equals):
            raise EngramError(f"where must be COLUMN=VALUE, not {where!r}.")
        found = production.erase(
            artefact,
            ids=ids or (),
            where={name: value} if where else None,
            block=block,
            reason=reason,
        )
        if json:
            print_json(found.as_json())
            return
        lines = found.sentences()
        print("\n".join(lines if report else lines[:1]))


def _schema(text: str) -> Literal["keep", "extend"]:
    if text not in ("keep", "extend"):
        raise EngramError(f"schema must be keep or extend, not {text!r}.")
    return "extend" if text == "extend" else "keep"


def _settings(texts: Sequence[str] | None, **own: object) -> dict[str, Any]:
    """Return what --set and the options of its own give by name."""
    given: dict[str, Any] = dict(parse_settings(texts or (), "--set"))
    for name, number in own.items():
        if number is not None:
            if name in given:
                raise EngramError(f"{name} is given twice, as --{name} and by --set.")
            given[name] = number
    return given


def _list_settings() -> None:
    import dataclasses

    from engram.app.cli.console import stdout_console
    from engram.production import DataSettings, TrainingSettings

    rows = [
        [each.name, str(each.default), each.metadata["help"]]
        for kind in (DataSettings, TrainingSettings)
        for each in dataclasses.fields(kind)
    ]
    stdout_console().print(_table(["setting", "default", "what it is"], rows))


def _show_first(result: Result, out: Path, *, as_json: bool) -> None:
    from engram.app.cli.console import print_json

    if as_json:
        print_json({"version": result.version, "current": result.current, "notes": result.notes})
        return
    print(f"Version {result.version} answers now: {one_line(out)}")
    _print_notes(result.notes)


def _show_update(result: Result, artefact: Path, *, as_json: bool) -> None:
    from engram.app.cli.console import print_json, stdout_console
    from engram.production.report import headings, part_rows, sentences

    if as_json:
        print_json({"current": result.current, "report": result.report})
        return
    report = result.report
    assert report is not None  # every update has one
    stdout_console().print(_table(headings(report), part_rows(report)))
    _print_notes([*report["reasons"], *sentences(report)])
    answers = "answers now" if result.current == result.version else "does not answer"
    print(f"Version {result.version}: {result.verdict}; it {answers}.", end=" ")
    print(f"Report: {one_line(artefact / 'versions' / f'{result.version:04}' / 'report.html')}")


def _print_notes(notes: Sequence[str]) -> None:
    for note in notes:
        print(f"- {one_line(note)}")


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Any:  # noqa: ANN401
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for name in headings:
        table.add_column(name)
    for row in rows:
        table.add_row(*map(one_line, row))
    return table


def _csv(rows: Sequence[Sequence[object]]) -> str:
    import csv
    import io

    from engram.app.cli.results import plain_cell

    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(plain_cell, row) for row in rows)
    return text.getvalue()
