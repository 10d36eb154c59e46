"""All fault operators, by name."""

from __future__ import annotations

from typing import Final

from tools.campaign.operators.checks import CHECKS
from tools.campaign.operators.deliveries import DELIVERIES
from tools.campaign.operators.hops import HOPS
from tools.campaign.operators.ingress import INGRESS
from tools.campaign.operators.letters import LETTERS
from tools.campaign.operators.moves import MOVES
from tools.campaign.operators.operator import Operator
from tools.campaign.operators.outcomes import OUTCOMES
from tools.campaign.operators.taken_back import TAKEN_BACK

OPERATORS: Final[dict[str, Operator]] = {
    one.name: one
    for file in (DELIVERIES, OUTCOMES, TAKEN_BACK, LETTERS, HOPS, CHECKS, INGRESS, MOVES)
    for one in file.all
}
