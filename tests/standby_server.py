"""A hot standby of a PostgreSQL server of a test."""

from tests.postgresql_server import PostgresqlServer


class StandbyServer(PostgresqlServer):
    """``with StandbyServer(primary, recovery_min_apply_delay="500ms") as standby: ...``"""

    def __init__(self, primary, **settings):
        super().__init__(**settings)
        self._primary = primary

    def _create(self):
        source = ["--host", self.host, "--port", str(self._primary.port), "--username", self.user]
        self._run("pg_basebackup", "-D", self._data, *source, "-R", "--checkpoint=fast", "--no-sync")
