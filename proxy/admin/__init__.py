"""The admin port: metrics and probes for machines, and an API for operators (docs/admin-api.md)."""

from proxy.admin.api import AdminApi
from proxy.admin.server import AdminServer

__all__ = ["AdminApi", "AdminServer"]
