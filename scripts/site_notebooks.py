"""MkDocs hook that shows the notebooks of docs/ as pages of the site.

A page has the markdown cells, the code cells, and the outputs that are stored in the notebook: text
and PNG images. Nothing is executed.
"""

from __future__ import annotations

import json
import re
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

LINK = re.compile(r"\(([\w./]*notebooks/\w+)\.ipynb\)")


def page_of(notebook: dict[str, Any]) -> str:
    """Return the markdown of a notebook.

    Args:
        notebook: The parsed `.ipynb`, format 4.
    """
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code":
            parts.append(f"```python\n{source}\n```")
            parts += [_output(output) for output in cell["outputs"]]
    return "\n\n".join(part for part in parts if part) + "\n"


def _output(output: dict[str, Any]) -> str:
    """Return the markdown of one output; empty for what a page cannot show."""
    data = output.get("data", {})
    if "image/png" in data:
        return f"![output of the cell above](data:image/png;base64,{data['image/png'].strip()})"
    text = "".join(output.get("text", data.get("text/plain", ""))).rstrip()
    return f"```text\n{text}\n```" if text else ""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace every notebook by its page, `notebooks/x.ipynb` by `notebooks/x.md`."""
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        files.remove(file)
        uri = file.src_uri.removesuffix(".ipynb") + ".md"
        files.append(File.generated(config, uri, content=page_of(json.loads(file.content_string))))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lead links to a notebook to its page; on a repository page they lead to the notebook."""
    return LINK.sub(r"(\1.md)", markdown)
