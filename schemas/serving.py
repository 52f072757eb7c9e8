"""The table of the GPUs that model servers held."""

from datetime import date, datetime

from pydantic import Field

from .base import Row, Table


class ServerHoursRow(Row):
    """GPUs that a model server of a profile held on one day: from one start of it to its end."""

    run_id: str = Field(description="The server's run: from one start to its end")
    day: date = Field(description="Day, UTC; a run over midnight has a row for each of its days")
    server: str = Field(description="Its name in the profile")
    model: str = Field(description="What it serves, as in the view `costs`")
    started_at: datetime = Field(description="When it got its GPUs (or the day began), UTC")
    ended_at: datetime = Field(
        description="When it gave them back (or the day ended), UTC; of a server that runs or was "
        "killed, its last sign of life, of which there is one a minute"
    )
    gpus: float = Field(description="Number of its GPUs, by the share of their memory")
    gpu_hours: float = Field(description="`gpus` times the hours of the row")
    cost_usd: float | None = Field(
        description="Their price by `gpu_hour_usd` of the server, or of trainings; null: none"
    )


SERVER_HOURS = Table("server_hours", ServerHoursRow, key=("run_id", "day"), sharded=True)
