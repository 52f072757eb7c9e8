"""Section `imports` of a profile: training rows of other people."""

from pathlib import Path

from pydantic import Field

from schemas.curation import ImportKind
from schemas.yaml_config import ConfigModel


class ImportSettings(ConfigModel):
    """A file of training rows. Each of them occurs once, unless `curation.exports.mix` has its
    weight."""

    kind: ImportKind = Field(description="Training set that its rows are mixed into")
    file: str = Field(description="File, or datasets/OWNER/NAME[@REVISION]/FILE of the Hub")
    images: Path | None = Field(None, description="Folder with its images; null: that of the file")
    licence: str = Field("not stated", description="Licence of the data, for tables and cards")
