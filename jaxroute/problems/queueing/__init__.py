"""Queueing with retrials (ACQB): policies decide which waiting query to serve next and with which models; a dissatisfied user tries again.

`acqb` holds the paper's policy, `parts` its components. `env` is the queue, `sources` generates queries and answers, `instances` builds ready-made
queues. `baselines` and `oracle` are the other policies, `theory` has the paper's bounds.
"""

from jaxroute.core.exports import public_names as _public_names

from .acqb import ACQB as ACQB
from .baselines import QUCB as QUCB
from .baselines import CQBEpsilon as CQBEpsilon
from .baselines import QThS as QThS
from .baselines import Random as Random
from .env import QueueEnv as QueueEnv
from .instances import RandomQueues as RandomQueues
from .instances import describe_contexts as describe_contexts
from .instances import fixed_queue as fixed_queue
from .instances import pool_queue as pool_queue
from .instances import recorded_queue as recorded_queue
from .instances import standin_queue as standin_queue
from .instances import table_queue as table_queue
from .oracle import Optimal as Optimal
from .oracle import PolicySwitch as PolicySwitch
from .parts.triggers import DecayingExploration as DecayingExploration
from .parts.triggers import PhaseThenCoin as PhaseThenCoin
from .parts.triggers import RecordedCoins as RecordedCoins
from .parts.waiting import waiting_percentiles as waiting_percentiles
from .sources.arrivals import Bursts as Bursts
from .sources.arrivals import Rates as Rates
from .sources.arrivals import Slots as Slots
from .sources.utility import departure_probability as departure_probability
from .sources.utility import describe_probabilities as describe_probabilities
from .sources.utility import divide_costs as divide_costs
from .theory import Theory as Theory
from .theory import expected_explorations as expected_explorations
from .theory import num_samples as num_samples

POLICIES = (ACQB, CQBEpsilon, QUCB, QThS, Random, Optimal)
ENVIRONMENTS = (RandomQueues, fixed_queue, recorded_queue, pool_queue, table_queue, standin_queue)
__dir__ = _public_names(__name__)
