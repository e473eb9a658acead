"""The commands. Exit codes: 0 fine, 1 the run failed, 2 bad input, 3 not reproduced.

130 stopped by Ctrl-C, 143 by SIGTERM.
"""

import json
import os
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from turnout.cli.error_messages import printable, said_plainly, starting
from turnout.cli.json_output import json_text
from turnout.cli.trace import trace_app
from turnout.cli.ui import ui
from turnout.errors import ConfigError

# A command imports what it needs when it is called: `turnout --help` must not wait for PyTorch.

app = typer.Typer(
    name="turnout",
    help="Federated learning with whoever turns up.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.add_typer(trace_app)
app.command()(ui)

StudyName = Annotated[str, typer.Argument(metavar="FILE|NAME", help="a study file, or a name of `turnout ls studies`")]
TargetText = Annotated[
    str | None, typer.Option("--target", metavar="METRIC=VALUE", help="what costs are measured to: accuracy=0.85")
]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]


def _found_here(allowed: bool) -> bool:
    """Where code is allowed, find a module in the folder the command is run from; elsewhere nothing there is run."""
    if allowed:
        sys.path.append(os.getcwd())
    return allowed


AllowCode = Annotated[
    bool, typer.Option("--allow-code", callback=_found_here, help="let the study name code, as package.module:Name")
]

AllowNetwork = Annotated[
    bool, typer.Option("--allow-network", help="let the study's track send numbers over the network; --track does too")
]
AcceptChangedData = Annotated[
    bool, typer.Option("--accept-changed-data", help="go on where the data changed since the study began; it is noted")
]

Deterministic = Annotated[
    bool,
    typer.Option("--deterministic", help="run in one fixed way: the same bits on any number of cores, but slower"),
]


def main(argv: list[str] | None = None) -> None:
    """Run the command and exit."""
    warnings.showwarning = _note
    app(args=argv, prog_name="turnout")


def _note(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo(f"note: {message}", err=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"turnout {version('turnout')}")
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Federated learning with whoever turns up."""


@app.command()
def run(
    study: StudyName,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.B=C", help="change a setting; may be repeated")
    ] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", min=1, help="repeat with seeds 0 to N-1")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="where it goes; runs/NAME if left out")] = None,
    engine: Annotated[str, typer.Option("--engine", help="vectorised or sequential")] = "vectorised",
    track: Annotated[
        list[str] | None, typer.Option("--track", help="tensorboard, mlflow or wandb; may be repeated")
    ] = None,
    deterministic: Deterministic = False,
    allow_code: AllowCode = False,
    allow_network: AllowNetwork = False,
    accept_changed_data: AcceptChangedData = False,
) -> None:
    """Run a study: every arm with every seed, then the comparison."""
    with said_plainly():
        with starting(study):
            from turnout.cli.run_study import carry_out
            from turnout.study import load_study

        overrides = [*(settings or ()), *([] if seeds is None else [f"seeds={seeds}"])]
        overrides += [f"track={json.dumps(track)}"] if track else []
        value = load_study(study, overrides, allow_code=allow_code, allow_network=allow_network or bool(track))
        folder = Path("runs") / value.name if out is None else out
        carry_out(value, folder, engine, deterministic=deterministic, accept_changed_data=accept_changed_data)


@app.command()
def resume(
    run: Annotated[Path, typer.Argument(metavar="DIR", help="a folder that turnout run wrote")],
    deterministic: Deterministic = False,
    allow_code: AllowCode = False,
    allow_network: AllowNetwork = False,
    accept_changed_data: AcceptChangedData = False,
) -> None:
    """Go on with a study that was stopped, killed or cut off: it ends as if it never had been."""
    with said_plainly():
        with starting(str(run)):
            from turnout.cli.resume import go_on

        allowed = {"allow_code": allow_code, "allow_network": allow_network}
        go_on(_folder(run), **allowed, deterministic=deterministic, accept_changed_data=accept_changed_data)


@app.command()
def check(study: StudyName, as_json: AsJson = False, allow_code: AllowCode = False) -> None:
    """Read a study and print it with every setting; no data is loaded."""
    from turnout.study import load_study, outlooks, resolved, to_toml

    with said_plainly():
        value = load_study(study, allow_code=allow_code, allow_network=True)  # it is only read
        plain_study = resolved(value)
        if as_json:
            typer.echo(json_text(plain_study))
        else:
            arms, seeds = len(value.versions()), len(value.all_seeds)
            typer.echo(f"# {arms} arm{'s'[: arms > 1]} x {seeds} seed{'s'[: seeds > 1]}: nothing is wrong with it")
            for line in outlooks(value):
                typer.echo(printable(f"# {line}"))
            typer.echo(to_toml(plain_study), nl=False)


@app.command()
def ls(
    axis: Annotated[
        str | None, typer.Argument(help="an axis, or settings, algorithms, losses, studies; all if left out")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List what there is to choose from."""
    from turnout.cli.listing import listed, listing_text

    with said_plainly():
        found = listed(axis)
        typer.echo(json_text(found) if as_json else listing_text(found))


@app.command()
def show(
    name: Annotated[
        str, typer.Argument(help='any name of `turnout ls`, such as fedavg or server/sgd, or "package.module:Name"')
    ],
    as_json: AsJson = False,
) -> None:
    """Show what a rule or algorithm says of itself: formula, settings, reference; or a setting, a loss or a study."""
    from turnout.cli.listing import found, shown_text

    with said_plainly():
        _found_here(":" in name)
        known = found(name)
        typer.echo(json_text(known) if as_json else "\n\n".join(map(shown_text, known)))


@app.command(name="compare")
def compare_runs(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="folders that turnout run wrote")],
    metric: Annotated[str | None, typer.Option("--metric", help="what to compare; accuracy, else loss")] = None,
    baseline: Annotated[str | None, typer.Option("--baseline", help="the arm others are held against")] = None,
    target: TargetText = None,
    as_json: AsJson = False,
) -> None:
    """Compare the arms of one study, or of several."""
    from turnout.analysis.compare import compare, recorded_target
    from turnout.analysis.target import target_written
    from turnout.cli.run_study import print_comparison
    from turnout.journal import load

    with said_plainly():
        loaded = [load(_folder(run)) for run in runs]
        goal = recorded_target(loaded) if target is None else target_written(target)
        found = compare(loaded, metric=metric, baseline=baseline, target=goal)
        if as_json:
            typer.echo(json_text(found.as_dict()))
        else:
            print_comparison(found)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="folders that turnout run wrote")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="the file; report.html in the folder")] = None,
    figures: Annotated[Path | None, typer.Option("--figures", help="a folder for figures and tables as files")] = None,
    target: TargetText = None,
    as_json: AsJson = False,
) -> None:
    """Write one page that says what happened, in words first."""
    from turnout.analysis.target import target_written
    from turnout.cli.report import report as write_report

    with said_plainly():
        goal = None if target is None else target_written(target)
        write_report([_folder(run) for run in runs], out, figures, goal, as_json=as_json)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="a folder that turnout run wrote")],
    out: Annotated[Path, typer.Option("-o", "--out", help="the file, NAME.safetensors")],
    arm: Annotated[str | None, typer.Option("--arm", help="whose model; may be left out if there is one arm")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="of which seed; may be left out if there is one")] = None,
    force: Annotated[bool, typer.Option("--force", help="overwrite the file if it exists")] = False,
) -> None:
    """Write a run's last model as PyTorch has it, for module.load_state_dict."""
    from turnout.cli.export import export as write_model  # PyTorch is imported only when asked for

    with said_plainly():
        write_model(_folder(run), arm, seed, out, force=force)


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(help="a shipped study; lists them all if left out")] = None,
    scale: Annotated[str, typer.Option("--scale", help="smoke, small or paper")] = "small",
    seeds: Annotated[int | None, typer.Option("--seeds", min=1, help="repeat with seeds 0 to N-1")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="where it goes; runs/reproduce/NAME-SCALE")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a study of a paper and say which claims held; exit 3 if a tested one did not."""
    from turnout.cli.reproduce import list_studies, run_one

    with said_plainly():
        if name is None:
            list_studies(as_json=as_json)
        else:
            run_one(name, scale, seeds, out, as_json=as_json)


def _folder(run: Path) -> Path:
    if run.is_dir():
        return run
    inside = Path("runs") / run
    if inside.is_dir():
        return inside
    raise ConfigError(f"There is no folder {run}. Name a folder that turnout run wrote, such as runs/demo.")
