from typing import Any, ClassVar

from django.db import migrations

from wheelcache.django_backend.database_bus import CREATE, OLDEST_VERSION, TABLE


def create_table(apps: Any, schema_editor: Any) -> None:
    """Create the table of ``COHERENCE = "database"`` where it can be used, whether or not a cache uses it yet."""
    connection = schema_editor.connection
    if connection.vendor == "postgresql" and connection.pg_version >= OLDEST_VERSION:
        schema_editor.execute(CREATE)


def drop_table(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(f"DROP TABLE IF EXISTS {TABLE}")


class Migration(migrations.Migration):
    dependencies: ClassVar = [("wheelcache", "0001_initial")]

    operations: ClassVar = [migrations.RunPython(create_table, drop_table, hints={"model_name": "notices"})]
