"""TOML files: their content with exact decimals."""

from decimal import Decimal
from pathlib import Path
from typing import Any

from analyzer.errors import InputError

MAX_FILE = 1 << 20


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file, decimals exact."""
    import tomllib

    try:
        if path.exists() and (not path.is_file() or path.stat().st_size > MAX_FILE):
            raise InputError(f"{path} is not a target file of at most {MAX_FILE} bytes")
        return tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    except OSError as error:
        raise InputError(f"cannot read {str(path)[:80]}: {error.strerror}") from None
    except (ValueError, RecursionError, ArithmeticError) as error:  # among them TOML and Unicode errors
        raise InputError(f"{path} is not valid TOML: {str(error)[:80]}") from None
