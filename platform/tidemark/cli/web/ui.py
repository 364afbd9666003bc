"""``tidemark ui`` and ``tidemark token``: serve the page of jobs and the REST API, and make tokens for its callers."""

from __future__ import annotations

from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

import click

from tidemark.cli.program.console_log import log_to_console
from tidemark.cli.program.documented_command import DocumentedCommand
from tidemark.cli.program.options import existing_store, store_option
from tidemark.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidemark.state.store.store import JobStore
    from tidemark.web.access.tokens import Role
    from tidemark.web.server.serving import UiServer

F = TypeVar("F", bound="Callable[..., object]")


def access_options(command: F) -> F:
    """Add ``--token-file`` and ``--host-name``."""
    for add in (
        click.option(
            "--host-name", "host_names", multiple=True, metavar="NAME", help="A name of the server besides localhost; may be repeated."
        ),
        click.option(
            "--token-file",
            default=None,
            metavar="FILE",
            help="TOML file of tokens, of mode 0600.  [default: $TIDEMARK_UI_TOKENS, else read-only without tokens]",
        ),
    ):
        command = add(command)
    return command


@click.command(cls=DocumentedCommand, examples=("tidemark ui", "tidemark ui --port 9000 --token-file tokens.toml"))
@store_option
@click.option("--port", type=click.IntRange(0, 65_535), default=8787, show_default=True, help="Port; 0 takes a free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; another than loopback requires tokens.")
@access_options
def ui(store: str | None, port: int, host: str, token_file: str | None, host_names: tuple[str, ...]) -> None:
    """Serve a page of the store's jobs and the REST API behind it, until SIGINT or SIGTERM.

    Without tokens it is for this machine, and read-only. With tokens each caller may do what its token's role allows.
    """
    log_to_console()
    root = existing_store(store)
    server = ui_server(root, host, port, token_file, host_names)
    click.echo(f"jobs of {root.uri} at {server.url}", err=True)
    with suppress(KeyboardInterrupt):
        server.run()


@click.command(cls=DocumentedCommand, examples=("tidemark token anna --role operator --jobs team-a-",))
@click.argument("name")
@click.option("--role", type=click.Choice(["viewer", "operator", "admin"]), default="viewer", show_default=True, help="What it may do.")
@click.option("--jobs", default="", metavar="PREFIX", help="Prefix of the names of its jobs.  [default: all jobs]")
def token(name: str, role: Role, jobs: str) -> None:
    """Make a token for the page and the API: its entry for the file of tokens on standard output, the token itself on standard error.

    NAME is the author of its changes in the history of jobs. The token is shown only now; the file has its SHA-256.
    """
    from tidemark.web.access.tokens import new_token, token_entry

    made, secret = new_token(name, role, jobs)
    click.echo(token_entry(made))
    click.echo(f"the token of {name}, which is not shown again: {secret}", err=True)


def ui_server(root: JobStore, host: str, port: int, token_file: str | None, host_names: tuple[str, ...]) -> UiServer:
    """Return a server of the page and the API, which listens already.

    Raises:
        SetupError: the packages of the extra ``ui`` are not installed, or the address cannot be listened on.
        DefinitionError: the tokens are invalid, or there are none although other machines can reach the address.
    """
    missing = [package for package in ("starlette", "uvicorn") if find_spec(package) is None]
    if missing:
        raise SetupError(f"the page needs {' and '.join(missing)}", fix="run pip install -e '.[ui]' in the checkout")
    from tidemark.web.access.tokens import load_tokens
    from tidemark.web.api.service import Service
    from tidemark.web.server.serving import serve

    return serve(Service(root), host=host, port=port, tokens=load_tokens(token_file), host_names=host_names)
