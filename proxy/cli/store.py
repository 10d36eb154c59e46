"""`store`: looks into the local data of a proxy that is stopped."""

import typer

app = typer.Typer(help="The local data of a stopped proxy.", no_args_is_help=True)
