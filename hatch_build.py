"""An editable install of mpsref has anymetal from this checkout; a wheel of mpsref requires the wheel of anymetal."""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Anymetal(BuildHookInterface):  # type: ignore[type-arg]
    """Add the requirement to a wheel: the same minor version, as both are released together."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add it unless the build is editable, which has the command ``anymetal``, too."""
        if version == "editable":
            build_data["shared_scripts"]["backends/anymetal/anymetal/__main__.py"] = "anymetal"
        else:
            minor = ".".join(self.metadata.version.split(".")[:2])
            build_data["dependencies"].append(f"anymetal~={minor}.0")
