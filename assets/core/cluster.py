"""Where Dagster's runs run, and where it keeps its history, if not on this machine."""

from pydantic import Field, PositiveFloat, PositiveInt

from schemas.yaml_config import ConfigModel


class RaySettings(ConfigModel):
    """Runs of the UI, its backfills and schedules as jobs of a Ray cluster."""

    address: str = Field(description="Ray's job server, such as http://head:8265")
    cpus: PositiveFloat = Field(1, description="CPUs of a node that a run takes")
    gpus: float = Field(0, ge=0, description="GPUs of a node that a run takes")
    resumes: int = Field(3, ge=0, description="How often a run goes on after its node has died")


class PostgresSettings(ConfigModel):
    """A database that all machines reach."""

    host: str = Field(description="Its server")
    port: PositiveInt = Field(5432, description="Its port")
    user: str = Field("dagster", description="Who it is asked as")
    database: str = Field("dagster", description="Its name")
    password: str | None = Field(
        None, description="Environment variable that holds the password; null: none is needed"
    )


class ClusterSettings(ConfigModel):
    """Dagster over more than one machine.

    Every node needs this package at the same path, and the same secrets in its environment.
    """

    ray: RaySettings | None = Field(None, description="null: runs stay on this machine")
    postgres: PostgresSettings | None = Field(
        None, description="Keeps Dagster's history; null: files in the home"
    )
    runs: PositiveInt = Field(16, description="Runs (shards) at work at the same time")
