"""Tutorials: jupytext sources, executed as notebooks, as pages of the site. A cell that raises, an assertion too, stops the build."""

import re
import tempfile
from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "tutorials"
SECONDS = 120
"""What one cell may take."""


def sources() -> list[Path]:
    """All tutorials."""
    return sorted(FOLDER.glob("*.py"))


def executed(source: Path, folder: Path) -> Any:
    """A tutorial as a notebook that was run in a folder, with its outputs."""
    import jupytext
    from nbclient import NotebookClient

    notebook = jupytext.read(source)
    client = NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    client.extra_arguments = ["--log-level=40"]
    client.execute()
    return notebook


def all_executed() -> dict[str, Any]:
    """All tutorials by their names, run in folders of their own, side by side."""

    def run(source: Path) -> Any:
        with tempfile.TemporaryDirectory() as place:
            return executed(source, Path(place))

    with ThreadPoolExecutor(2) as pool:
        return dict(zip((source.stem for source in sources()), pool.map(run, sources()), strict=True))


def page(notebook: Any, name: str, images: Path) -> str:
    """An executed notebook as Markdown; its pictures are written into a folder beside the page."""
    parts: list[str] = []
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        elif cell.cell_type == "code":
            parts.append(f"```python\n{cell.source}\n```")
            parts += [_shown(output, f"{name}-{number}-{k}", images) for k, output in enumerate(cell.outputs)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _shown(output: Any, name: str, images: Path) -> str:
    """An output: a picture, a table, or text."""
    if output.output_type == "stream":
        return "" if output.name == "stderr" else f"```text\n{output.text.rstrip()}\n```"
    data = output.get("data", {})
    if "image/svg+xml" in data:
        return _picture(images / f"{name}.svg", data["image/svg+xml"].encode())
    if "image/png" in data:
        return _picture(images / f"{name}.png", b64decode(data["image/png"]))
    if "text/html" in data:
        return f'```{{raw}} html\n<div class="shown">{re.sub(chr(10) + "+", chr(10), data["text/html"])}</div>\n```'
    return f"```text\n{data['text/plain']}\n```" if "text/plain" in data else ""


def _picture(path: Path, content: bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return f"![{path.stem}]({path.parent.name}/{path.name})"
