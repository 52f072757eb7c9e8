"""The `interleave` command. Commands of one theme are a file beside this one; what is slow to
import is imported when the command runs."""

import typer

# Absolute: a worker process of `serve` imports this file as a script.
from dagster_project.cli import (
    benchmarks,
    checkpoints,
    doctor,
    generate,
    imports,
    reviews,
    run,
    serving,
    sql,
    storage,
)
from schemas import FoundryError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Interleave Foundry: train and serve agents that answer in images and text.",
)
for command in (
    run.run,
    run.improve,
    generate.generate,
    benchmarks.evaluate,
    benchmarks.report,
    benchmarks.agreement,
    reviews.replay,
    reviews.branch,
    reviews.reviews,
    sql.sql,
    sql.costs,
    serving.ui,
    serving.serve,
    serving.servers,
    doctor.rehearse,
    doctor.doctor,
    storage.verify,
    checkpoints.checkpoints,
    checkpoints.promote,
    checkpoints.rollback,
    storage.compact,
    storage.gc,
    checkpoints.push,
    checkpoints.pull,
):
    app.command()(command)
app.add_typer(serving.generators_app, name="generator")
app.add_typer(serving.agents_app, name="agents")
app.add_typer(serving.environments_app, name="env")
app.add_typer(imports.prompts_app, name="prompts")
app.add_typer(imports.imports_app, name="import")


def main() -> None:
    """Run the command; a user's mistake ends in one line, a bug in a traceback."""
    try:
        app()
    except FoundryError as error:
        typer.secho(f"error: {error}", fg="red", err=True)
        raise SystemExit(1) from error
    except Exception as error:
        if not type(error).__module__.startswith("_duckdb") or "parquet" not in str(error).lower():
            raise
        message = " ".join(str(error).split())  # it names the file
        remedy = "`interleave verify --repair` makes it again"
        typer.secho(f"error: a table is damaged: {message}: {remedy}", fg="red", err=True)
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
