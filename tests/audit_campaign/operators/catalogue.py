"""All fault operators, by name."""

from __future__ import annotations

from typing import Final

from tests.audit_campaign.operators.checks import CHECKS
from tests.audit_campaign.operators.deliveries import DELIVERIES
from tests.audit_campaign.operators.hops import HOPS
from tests.audit_campaign.operators.ingress import INGRESS
from tests.audit_campaign.operators.letters import LETTERS
from tests.audit_campaign.operators.moves import MOVES
from tests.audit_campaign.operators.operator import Operator
from tests.audit_campaign.operators.outcomes import OUTCOMES
from tests.audit_campaign.operators.taken_back import TAKEN_BACK

OPERATORS: Final[dict[str, Operator]] = {
    one.name: one
    for file in (DELIVERIES, OUTCOMES, TAKEN_BACK, LETTERS, HOPS, CHECKS, INGRESS, MOVES)
    for one in file.all
}
