"""The answer about a device: does its arithmetic do what float certificates assume?"""

from collections.abc import Mapping, Sequence
from typing import cast

from lemmaformer.results.base import Plain, Result


class Diagnosis(Result):
    """Hypotheses of float certificates on a device, and the certificates that apply there.

    >>> import lemmaformer as lf
    >>> found = lf.doctor()
    >>> found.holds, found.violated, found.applies("softmax layers", "float32")
    (True, [], True)
    """

    shown_by = "devices:show_diagnosis"

    @property
    def holds(self) -> bool:
        """Whether no hypothesis was violated, of the float types that the device has."""
        return cast(bool, self.data["holds"])

    @property
    def violated(self) -> Sequence[str]:
        """Hypotheses that are violated, as "type: name"."""
        return cast("Sequence[str]", self.data["violated"])

    @property
    def device(self) -> Mapping[str, str]:
        """Platform, kind, and the version of JAX."""
        return cast("Mapping[str, str]", self.data["device"])

    @property
    def dtypes(self) -> Sequence[Plain]:
        """One per float type: `available`, `checks`, `facts`."""
        return cast("Sequence[Plain]", self.data["dtypes"])

    @property
    def certificates(self) -> Sequence[Plain]:
        """One per family of certificates and float type: `what`, `dtype`, `applies`, `why`."""
        return cast("Sequence[Plain]", self.data["certificates"])

    def applies(self, what: str, dtype: str | None = None) -> bool:
        """Whether the certificates of a family apply to networks of a float type that run here; to exact ones without a type."""
        return any(row["applies"] for row in self.certificates if (row["what"], row["dtype"]) == (what, dtype))

    def _brief(self) -> str:
        return f" {self.device['platform']}: {'all hypotheses hold' if self.holds else 'violated: ' + ', '.join(self.violated)}"
