"""The names of the process, so that operators see which process they work on."""

from pydantic import Field

from proxy import __version__
from proxy.admin.answers import Answer
from proxy.config.settings import Settings

RUNBOOK = "operations/runbook/"
"""Place of the runbook on the site of the docs."""


class Identity(Answer):
    """The process: its names, its environment, and links for its operators."""

    version: str
    cluster: str | None = Field(
        description="Id of the Kafka cluster. Null if the broker did not answer within 2 s."
    )
    group: str = Field(description="The setting `group_id`.")
    instance: str = Field(description="The setting `instance_id`, or the host name.")
    ingress: str = Field(description="Name of the ingress topic.")
    environment: str | None = Field(description="The setting `admin.environment`.")
    colour: str | None = Field(description="The setting `admin.colour`.")
    docs_url: str | None = Field(description="The setting `admin.docs_url`.")
    runbook_url: str | None = Field(
        description="The setting `admin.runbook_url`, or the runbook at `admin.docs_url`."
    )


def identity_of(settings: Settings, cluster: str | None) -> Identity:
    """Return the names in the settings, with the id of the cluster."""
    admin = settings.admin
    own = None if admin.docs_url is None else f"{admin.docs_url.rstrip('/')}/{RUNBOOK}"
    return Identity(
        version=__version__,
        cluster=cluster,
        group=settings.group_id,
        instance=settings.instance_name,
        ingress=settings.topics.ingress,
        environment=admin.environment,
        colour=admin.colour,
        docs_url=admin.docs_url,
        runbook_url=admin.runbook_url or own,
    )
