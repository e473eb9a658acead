"""The commands. Exit codes: 0 fine, 1 the run failed, 2 bad input, 3 a claim is contradicted, 4 one is not settled.

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

from turnout.cli.deploy import deploy_app
from turnout.cli.error_messages import clear_errors, printable, starting
from turnout.cli.json_output import json_text
from turnout.cli.trace import trace_app
from turnout.cli.ui import ui
from turnout.errors import ConfigError

# A command imports what it needs when it is called: `turnout --help` must not wait for PyTorch.

app = typer.Typer(
    name="turnout",
    help="Federated learning with clients that come and go.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.add_typer(trace_app)
app.add_typer(deploy_app)
app.command()(ui)

StudyName = Annotated[str, typer.Argument(metavar="FILE|NAME", help="a study file, or a name of `turnout ls studies`")]
TargetText = Annotated[
    str | None,
    typer.Option("--target", metavar="METRIC=VALUE", help="count costs up to this value"),
]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]


def _allow_imports_from_here(allowed: bool) -> bool:
    """If code is allowed, let modules in the current folder be imported; otherwise no code there runs."""
    if allowed:
        sys.path.append(os.getcwd())
    return allowed


AllowCode = Annotated[
    bool,
    typer.Option(
        "--allow-code", callback=_allow_imports_from_here, help="allow code that the study names as package.module:Name"
    ),
]

AllowNetwork = Annotated[
    bool,
    typer.Option("--allow-network", help="let the study's trackers send numbers over the network"),
]
AcceptChangedData = Annotated[
    bool,
    typer.Option("--accept-changed-data", help="resume although the data changed; the journal records it"),
]

Deterministic = Annotated[
    bool,
    typer.Option("--deterministic", help="give bit-identical results on any number of cores; slower"),
]

Address = Annotated[
    str | None,
    typer.Option("--address", metavar="HOST:PORT", help="for the engine ray: a running cluster; else this machine"),
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
    """Federated learning with clients that come and go."""


@app.command()
def run(
    study: StudyName,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.B=C", help="change a setting; may be repeated")
    ] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", min=1, help="repeat with seeds 0 to N-1")] = None,
    until_clear: Annotated[
        bool, typer.Option("--until-clear", help="add seeds until every difference from the first arm is clear")
    ] = False,
    most: Annotated[
        int | None, typer.Option("--most", min=3, help="with --until-clear: the largest number of seeds; 40 by default")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="the output folder; runs/NAME by default")] = None,
    engine: Annotated[str, typer.Option("--engine", help="vectorised, sequential or ray")] = "vectorised",
    address: Address = None,
    track: Annotated[
        list[str] | None, typer.Option("--track", help="tensorboard, mlflow or wandb; may be repeated")
    ] = None,
    deterministic: Deterministic = False,
    allow_code: AllowCode = False,
    allow_network: AllowNetwork = False,
    accept_changed_data: AcceptChangedData = False,
) -> None:
    """Run a study: every arm with every seed, then compare the arms."""
    with clear_errors():
        with starting(study):
            from turnout.cli.run_study import carry_out, with_seeds_added
            from turnout.study import load_study

        overrides = [*(settings or ()), *([] if seeds is None else [f"seeds={seeds}"])]
        overrides += [f"track={json.dumps(track)}"] if track else []
        value = load_study(study, overrides, allow_code=allow_code, allow_network=allow_network or bool(track))
        value = with_seeds_added(value, until_clear, most)
        folder = Path("runs") / value.name if out is None else out
        how = {"deterministic": deterministic, "accept_changed_data": accept_changed_data}
        carry_out(value, folder, engine, address=address, **how)


@app.command()
def resume(
    run: Annotated[Path, typer.Argument(metavar="DIR", help="an output folder of turnout run")],
    address: Address = None,
    deterministic: Deterministic = False,
    allow_code: AllowCode = False,
    allow_network: AllowNetwork = False,
    accept_changed_data: AcceptChangedData = False,
) -> None:
    """Resume a study that was stopped or killed; the results are the same as without the interruption."""
    with clear_errors():
        with starting(str(run)):
            from turnout.cli.resume import resume_study

        allowed = {"allow_code": allow_code, "allow_network": allow_network}
        how = {"deterministic": deterministic, "accept_changed_data": accept_changed_data}
        resume_study(_folder(run), address=address, **allowed, **how)


@app.command()
def check(study: StudyName, as_json: AsJson = False, allow_code: AllowCode = False) -> None:
    """Check a study and print it with all settings; no data is loaded."""
    with clear_errors():
        with starting(study):
            from turnout.study import load_study, preview_notes, resolved_settings, to_toml

        value = load_study(study, allow_code=allow_code, allow_network=True)  # nothing is run
        plain_study = resolved_settings(value)
        if as_json:
            typer.echo(json_text(plain_study))
        else:
            arms = len(value.versions())
            typer.echo(f"# {arms} arm{'s'[: arms > 1]} x {value.seeds_text}: no problems found")
            for line in preview_notes(value):
                typer.echo(printable(f"# {line}"))
            typer.echo(to_toml(plain_study), nl=False)


@app.command()
def diagnose(
    study: StudyName,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.B=C", help="change a setting; may be repeated")
    ] = None,
    arm: Annotated[str | None, typer.Option("--arm", help="the arm; the first by default")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="the seed; the first by default")] = None,
    as_json: AsJson = False,
    allow_code: AllowCode = False,
) -> None:
    """Measure what makes a study hard, and say which rules address it, before its rounds are spent."""
    with clear_errors():
        with starting(study):
            from turnout.cli.diagnose import print_diagnosis
            from turnout.study import load_study

        value = load_study(study, settings or (), allow_code=allow_code, allow_network=True)  # nothing is tracked
        print_diagnosis(value, arm, seed, as_json=as_json)


@app.command()
def ls(
    axis: Annotated[
        str | None, typer.Argument(help="an axis, or settings, algorithms, losses, studies; all by default")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the rules of each axis, and the algorithms, losses, settings and studies."""
    from turnout.cli.listing import listed, listing_text

    with clear_errors():
        found = listed(axis)
        typer.echo(json_text(found) if as_json else listing_text(found))


@app.command()
def show(
    name: Annotated[
        str, typer.Argument(help='any name of `turnout ls`, such as fedavg or server/sgd, or "package.module:Name"')
    ],
    as_json: AsJson = False,
) -> None:
    """Show a rule or algorithm with its formula, settings and reference; or a setting, a loss or a study."""
    from turnout.cli.listing import found, shown_text

    with clear_errors():
        _allow_imports_from_here(":" in name)
        known = found(name)
        typer.echo(json_text(known) if as_json else "\n\n".join(map(shown_text, known)))


@app.command(name="compare")
def compare_runs(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="output folders of turnout run")],
    metric: Annotated[
        str | None, typer.Option("--metric", help="the metric to compare; accuracy by default, else loss")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="the arm to compare with; the first by default")
    ] = None,
    target: TargetText = None,
    as_json: AsJson = False,
) -> None:
    """Compare the arms of one study, or of several."""
    with clear_errors():
        with starting("compare"):
            from turnout.analysis.compare import compare, recorded_target
            from turnout.analysis.target import parse_target
            from turnout.cli.run_study import print_comparison
            from turnout.journal import load

        loaded = [load(_folder(run)) for run in runs]
        goal = recorded_target(loaded) if target is None else parse_target(target)
        comparison = compare(loaded, metric=metric, baseline=baseline, target=goal)
        if as_json:
            typer.echo(json_text(comparison.as_dict()))
        else:
            print_comparison(comparison)


@app.command()
def power(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...|FILE", help="output folders of turnout run, results of turnout reproduce, or one study file"
        ),
    ],
    delta: Annotated[
        float | None,
        typer.Option("--delta", help="the difference to tell: points of accuracy, else in the metric's unit; 1 point"),
    ] = None,
    metric: Annotated[
        str | None, typer.Option("--metric", help="the metric to plan for; accuracy by default, else loss")
    ] = None,
    pilot: Annotated[
        int | None,
        typer.Option("--pilot", min=2, help="of a study file: the number of pilot seeds to run; 5 by default"),
    ] = None,
    as_json: AsJson = False,
    allow_code: AllowCode = False,
) -> None:
    """Say how many seeds tell the arms apart or settle the claims, and what the seeds of finished runs can tell."""
    with clear_errors():
        with starting("power"):
            from turnout.cli.power import print_seed_plan

        print_seed_plan(sources, metric, delta, pilot, allow_code=allow_code, as_json=as_json)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="output folders of turnout run")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="the HTML file; report.html in the run's folder by default")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option("--figures", help="also write figures and tables as files to this folder")
    ] = None,
    target: TargetText = None,
    as_json: AsJson = False,
) -> None:
    """Write the HTML report."""
    with clear_errors():
        with starting("report"):
            from turnout.analysis.target import parse_target
            from turnout.cli.report import report as write_report

        goal = None if target is None else parse_target(target)
        write_report([_folder(run) for run in runs], out, figures, goal, as_json=as_json)


@app.command()
def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="an output folder of turnout run")],
    arm: Annotated[str | None, typer.Option("--arm", help="one arm; all by default")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="one seed; all by default")] = None,
    since: Annotated[int, typer.Option("--since", min=1, help="the first round that counts")] = 1,
    repair: Annotated[bool, typer.Option("--repair", help="write a study with coefficients that meet p")] = False,
    as_json: AsJson = False,
) -> None:
    """Say which objective the runs minimised: the weight of each client, and why it is not the weight asked for."""
    with clear_errors():
        with starting("audit"):
            from turnout.cli.audit import audit as print_audit

        print_audit(_folder(run), arm, seed, since, repairs=repair, as_json=as_json)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="an output folder of turnout run")],
    out: Annotated[Path, typer.Option("-o", "--out", help="the file to write, NAME.safetensors")],
    arm: Annotated[str | None, typer.Option("--arm", help="the arm; not needed if there is only one")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="the seed; not needed if there is only one")] = None,
    client: Annotated[int | None, typer.Option("--client", help="a client's id, for the model that it uses")] = None,
    which: Annotated[str | None, typer.Option("--which", help="with APFL: mixture (default) or personal")] = None,
    force: Annotated[bool, typer.Option("--force", help="overwrite the file if it exists")] = False,
) -> None:
    """Write a run's last model as a safetensors file, for module.load_state_dict."""
    from turnout.cli.export import export as write_model  # PyTorch is imported only when asked for

    with clear_errors():
        write_model(_folder(run), (arm, seed), (client, which), out, force=force)


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(help="the study to reproduce; lists all by default")] = None,
    scale: Annotated[str, typer.Option("--scale", help="smoke, small or paper")] = "small",
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, help="a fixed number of seeds; by default more until claims settle")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="the output folder; runs/reproduce/NAME-SCALE by default")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Reproduce a paper's study and judge its claims; exit with 3 if one is contradicted, 4 if one is not settled."""
    from turnout.cli.reproduce import list_studies, run_one

    with clear_errors():
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
    raise ConfigError(f"There is no folder {run}. Name an output folder of turnout run, such as runs/demo.")
