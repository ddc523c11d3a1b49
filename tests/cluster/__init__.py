"""Real Kubernetes clusters on one plain machine, for tests and the demo. See README.md beside this file."""

from tests.cluster.audit import AuditEvent
from tests.cluster.cluster import Cluster
from tests.cluster.errors import HarnessError
from tests.cluster.images import Images, build_images
from tests.cluster.prerequisites import Tier

__all__ = ["AuditEvent", "Cluster", "HarnessError", "Images", "Tier", "build_images"]
