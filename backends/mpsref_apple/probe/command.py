"""The command ``mpsref probe``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mpsref_apple.probe.declare import Choice

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def probe(
    only: Annotated[list[str] | None, typer.Argument(help="Identifiers of choices; by default all.")] = None,
    *,
    listed: Annotated[bool, typer.Option("--list", help="Show the choices and their alternatives, and stop.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Run over a fake of MPS in which each alternative is planted once.")
    ] = False,
    output: Annotated[Path, typer.Option(help="The file to write.")] = Path("mpsref-probe.json"),
) -> None:
    """On a Mac: compare Apple's kernels with the alternatives of the open choices, and write what was found."""
    from mpsref_apple.probe import choice, choices, run  # here: `mpsref --help` imports this module

    for id in only or []:
        choice(id)  # raises for an unknown one
    if listed:
        for one in choices():
            if not only or one.id in only:
                typer.echo(_described(one))
        return
    chosen = run.probed(only or ())
    if dry_run:
        missed = [
            f"{one.id}: {name} was taken for {finding.verdict}"
            for one in chosen
            for name in one.alternatives
            if (finding := run.recognized(one, name)).verdict != name
        ]
        number = sum(len(one.alternatives) for one in chosen)
        typer.echo(f"{number - len(missed)} of {number} planted alternatives of {len(chosen)} choices recognized.")
        typer.echo("Nothing ran on a GPU: this shows that the probe works, not what Apple's kernels do.")
        for line in missed:
            typer.echo(line)
        raise typer.Exit(1 if missed else 0)
    if not output.absolute().parent.is_dir():
        raise ValueError(f"there is no folder '{output.parent}' for {output.name}; make it first")
    device = f"{run.machine().backend.device()}, {run.system()}"
    findings = run.in_processes(chosen, lambda found: typer.echo(str(found)))
    output.write_text(json.dumps(run.document(findings, device), indent=1) + "\n", encoding="utf-8")
    same = sum(finding.same for finding in findings)
    typer.echo(f"{same} of {len(findings)} as in mpsref.")
    typer.echo(f"Please attach the file {output.absolute()} to {run.destination()}")


def _described(one: Choice) -> str:
    """Describe a choice for the terminal."""
    lines = [f"{one.id}: {one.statement}"]
    lines += [f"    {'*' if name == one.chosen else ' '} {name}: {text}" for name, text in one.alternatives.items()]
    return "\n".join([*lines, "      no question to Apple's kernels"] if one.tag == "design" else lines)
