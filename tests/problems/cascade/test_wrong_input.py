"""What is refused, and with which words."""

import numpy as np
import pytest
from cascade_cases import custom, queries, rows, run, table, with_constants

import jaxroute as jr
from jaxroute.engine.rounds import spec_for
from jaxroute.estimators.glm import ExactGLM, FrozenGLM, OnlineGLM
from jaxroute.problems import cascade as ca
from jaxroute.problems.cascade.optimum import cost_order, single_values
from jaxroute.problems.cascade.parts.exploration import BlockExploration, DecayingExploration, ExplorationPhase, WarmUp
from jaxroute.problems.cascade.parts.indices import GradientDescent, LocationFamily, StreamingNewton
from jaxroute.problems.cascade.parts.radii import BootstrapRadius, PracticalRadius, SampledRadius, TheoreticalRadius
from jaxroute.problems.cascade.parts.window import MomentEquations, Window
from jaxroute.problems.cascade.sources.boxes import PassFailBoxes, SpikeBoxes, UniformBoxes
from jaxroute.problems.cascade.sources.contexts import (
    FrozenContexts,
    GroupContexts,
    RecordedContexts,
    TwoTimesContexts,
    UniformContexts,
)
from jaxroute.problems.cascade.sources.features import (
    FrozenFeatures,
    RadialNoise,
    RecordedFeatures,
    ScoredFeatures,
)
from jaxroute.problems.cascade.theory import potential_bound, residual, ridge_rule

NAN = float("nan")


def unscored(policy, **options):
    return run(policy, custom(evaluator=2), **options)


WRONG = {
    # Environments.
    "one model": (lambda: ca.uniform_cascade(1), "num_models must be at least 2, got 1"),
    "no features": (lambda: ca.uniform_cascade(3, 0), "dim must be at least 1, got 0"),
    "too much tilt": (lambda: ca.uniform_cascade(tilt=1.5), "tilt must be between -1 and 1, got 1.5"),
    "tilt without x": (lambda: ca.uniform_cascade(3, 1, tilt=0.2), r"tilt must be None where requests have one feature: there is no x_1, got 0.2"),
    "bend without x": (lambda: ca.uniform_cascade(3, 1, bend=0.1), "bend must be None where requests have one feature"),
    "bend as text": (lambda: ca.uniform_cascade(bend="a"), "bend must be a number or an array of numbers, got 'a'"),
    "unknown link": (lambda: ca.uniform_cascade(link="tahn"), "link must be one of 'identity', 'tanh', 'flat', got 'tahn'; did you mean 'tanh'"),
    "contexts as a number": (lambda: ca.uniform_cascade(contexts=3), r"contexts must be an object such as UniformContexts\(...\), got 3"),
    "contexts of another size": (lambda: ca.uniform_cascade(contexts=UniformContexts(2)), "contexts must have 3 features, as the indices, got 2"),
    "evaluator as text": (lambda: ca.uniform_cascade(evaluator="five"), r"evaluator must be None, a number of features or ScoredFeatures\(...\), got 'five'"),
    "no output features": (lambda: ca.uniform_cascade(evaluator=0), "evaluator must be None, a number of features .*, got 0"),
    "cost weight of zero": (lambda: ca.uniform_cascade(cost_weight=0.0), "cost_weight must be above 0, got 0"),
    "a flag as a number": (lambda: ca.uniform_cascade(shows_all=2), "shows_all must be True or False, got 2"),
    "probabilities that do not sum to 1": (lambda: ca.group_cascade([0.5, 0.4]), r"probabilities must sum to 1, got the sum 0.9"),
    "one probability": (lambda: ca.group_cascade(0.5), r"probabilities must have shape \[groups\], got \(\)"),
    "a gap as text": (lambda: ca.safe_and_risky("a"), "gap must be a number or an array of numbers, got 'a'"),
    "negative cost": (lambda: custom(mean_cost=[0.02, -0.1]), r"mean_cost must be above 0, got -0.1 at index \(1,\)"),
    "costs of other models": (lambda: custom(mean_cost=[0.02, 0.1, 0.1]), r"mean_cost must have shape \(2,\), got \(3,\)"),
    "probability above 1": (lambda: custom(quantile=[0.5, 1.2]), r"quantile must be in \[0, 1\], got 1.2 at index \(1,\)"),
    "never above the index": (lambda: custom(quantile=[0.5, 1.0]), "quantile must be at least 0 and below 1, got 1"),
    "costs below zero": (lambda: custom(cost_spread=1.5), r"cost_spread must be in \[0, 1\], got 1.5"),
    "too few names": (lambda: custom(names=["a"]), r"names must have one name per model \(2\), got 1"),
    "names as one word": (lambda: custom(names="ab"), "names must be a list of names, got 'ab'"),
    # Recorded queries.
    "score above 1": (lambda: rows(scores=table()[0] + 1), r"scores must be in \[0, 1\], got 1.\d+ at index \(0, 0\)"),
    "scores of one model": (lambda: rows(scores=table()[0][:, 0]), r"scores must have shape \[N, K\], got \(40,\)"),
    "negative table cost": (lambda: rows(costs=-table()[1]), r"costs must be at least 0, got -0.\d+ at index \(0, 0\)"),
    "half a group": (lambda: rows(groups=table()[2] + 0.5), r"groups must be whole numbers from 0, got \d.5"),
    "an empty group": (lambda: rows(groups=2 * table()[2]), r"groups must be numbered without gaps, got \[0, 2, 4\]"),
    "too few groups": (lambda: rows(groups=[0, 1]), r"groups must have shape \(40,\), got \(2,\)"),
    "features of other queries": (lambda: rows(features=np.ones((5, 3, 2))), r"features must have shape \[40, 3, d\], got \(5, 3, 2\)"),
    "NaN features": (lambda: rows(features=table()[3] * NAN), r"features must be finite, got nan at index \(0, 0, 0\)"),
    "unknown link of scores": (lambda: rows(features=table()[3], score_link="logit"), "score_link must be one of 'logistic', 'probit', 'identity', got 'logit'; did you mean 'logistic'"),
    "joint as a number": (lambda: rows(joint=1), "joint must be True or False, got 1"),
    "no weight of replayed costs": (lambda: rows(cost_weight=0), "cost_weight must be above 0, got 0"),
    "contexts of other queries": (lambda: queries(contexts=np.ones((5, 2))), r"contexts must have shape \[40, m\], got \(5, 2\)"),
    "a model for free": (lambda: queries(costs=table()[1] * [1.0, 0.0, 1.0]), "costs must be above 0 somewhere in each column, got none in column 1"),
    "an order by name": (lambda: queries(shuffled="file"), "shuffled must be True or False, got 'file'"),
    "queries of a distribution": (lambda: run(ca.QueryAll(), queries().replace(contexts=UniformContexts(2))), "contexts must be RecordedContexts or ShuffledContexts"),
    "directions without features": (lambda: ca.recorded_rows("standin", directions=0), "directions must be from 1 to 64, got 0"),
    "too many directions": (lambda: ca.recorded_rows("standin", directions=65), "directions must be .*64, got 65"),
    "negative tokens": (lambda: ca.token_costs([1, -2], 1, 1, 1), r"input_tokens must be at least 0, got -2 at index \(1,\)"),
    "prices of other models": (lambda: ca.token_costs(np.ones((4, 2)), 1, np.ones(3), 1), r"input_tokens, .* must broadcast, got \(4, 2\), \(\), \(3,\) and \(\)"),
    # Their parts.
    "no boxes": (lambda: ca.CascadeEnv(UniformContexts(1), 5, [[0.5]]).check(), r"boxes must be an object such as UniformBoxes\(...\), got 5"),
    "a number for features": (lambda: run(ca.QueryAll(), custom().replace(evaluator=4)), r"env: evaluator must be an object such as ScoredFeatures\(...\), got 4"),
    "a link by name": (lambda: run(ca.QueryAll(), custom().replace(index_link="tanh")), "env: index_link must be a Link, got 'tanh'"),
    "indices of other boxes": (lambda: run(ca.QueryAll(), custom().replace(index=np.ones((3, 2)))), r"env: index must have shape \(2, 2\), got \(3, 2\)"),
    "a changed weight": (lambda: run(ca.QueryAll(), custom().replace(cost_weight=NAN)), "env: cost_weight must be finite, got nan"),
    "one cost": (lambda: UniformBoxes(0.1, 0.5).check(), r"base_cost must have shape \[K\], got \(\)"),
    "a jackpot above 1": (lambda: SpikeBoxes([0.1], [0.5], jackpot=2.0).check(), r"jackpot must be at least 0 and below 1, got 2"),
    "no top": (lambda: SpikeBoxes([0.1], [0.5], top=0.0).check(), r"top must be in \(0, 1\], got 0"),
    "probability of zero": (lambda: PassFailBoxes([0.0, 0.5]).check(), r"base_probability must be in \(0, 1\], got 0 at index \(0,\)"),
    "low above high": (lambda: PassFailBoxes([0.5], low=0.9, high=0.2).check(), "low must be below high, got 0.9 and 0.2"),
    "a slope too steep": (lambda: PassFailBoxes([0.3], slope=0.5).check(), r"slope must leave the probabilities \[0.3\] in \(0, 1\], got 0.5"),
    "a slope without x": (lambda: ca.CascadeEnv(UniformContexts(1), PassFailBoxes([0.3]), [[0.5]]).check(), "slope must be None where requests have one feature"),
    "low contexts above high": (lambda: UniformContexts(2, 1.0, 0.0).check(), "low must not be above high, got 1 and 0"),
    "a number for contexts": (lambda: TwoTimesContexts(5, UniformContexts(2), 5).check(), "first must be contexts that do not depend on earlier ones, got 5"),
    "frozen contexts for a time": (lambda: TwoTimesContexts(UniformContexts(2), FrozenContexts(), 5).check(), "second must be contexts that do not .*, got FrozenContexts"),
    "half a period": (lambda: TwoTimesContexts(UniformContexts(2), UniformContexts(2), 0.5).check(), "length must be a whole number at least 1, got 0.5"),
    "no period": (lambda: TwoTimesContexts(UniformContexts(2), UniformContexts(2), 0).check(), "length must be above 0, got 0"),
    "contexts of two sizes": (lambda: TwoTimesContexts(UniformContexts(2), UniformContexts(3), 5).check(), "first and second must have one dimension, got 2 and 3"),
    "probabilities of groups": (lambda: GroupContexts([0.2, 0.2]).check(), r"probabilities must sum to 1, got the sum 0.4"),
    "a zero theta": (lambda: custom(evaluator=ScoredFeatures([0.0, 0.0])), r"theta must not be zero, got \[0.0, 0.0\]"),
    "a table for theta": (lambda: custom(evaluator=ScoredFeatures(np.ones((2, 2)))), r"theta must have shape \[d\], got \(2, 2\)"),
    "noise by name": (lambda: custom(evaluator=ScoredFeatures([1.0], noise="normal")), r"noise must be an object such as CubeNoise\(\), got 'normal'"),
    "a score link by name": (lambda: custom(evaluator=ScoredFeatures([1.0], link="probit")), "link must be a Link, got 'probit'"),
    "shifts of other boxes": (lambda: custom(evaluator=ScoredFeatures([1.0, 1.0], shift=np.ones((3, 2)))), r"shift must have shape \(2, 2\), got \(3, 2\)"),
    "falling quantiles": (lambda: custom(evaluator=ScoredFeatures([1.0], noise=RadialNoise(np.array([1.0, 0.5])))), r"quantiles must be two lengths or more that do not fall, got \[1.0, 0.5\]"),
    "normal noise of no dimension": (lambda: RadialNoise.normal(0), "dim must be at least 1, got 0"),
    "normal noise of no length": (lambda: RadialNoise.normal(2, longest=0.0), "longest must be above 0, got 0"),
    "no freedom": (lambda: RadialNoise.student(2, freedom=-1.0), "freedom must be above 0, got -1"),
    "frozen features without x": (lambda: custom(index=[[0.5], [0.6]], evaluator=FrozenFeatures()), "evaluator must not be FrozenFeatures where requests have 1 feature"),
    "recorded features without records": (lambda: custom(evaluator=RecordedFeatures(np.ones((4, 2, 1)), [1.0])), "evaluator must not be RecordedFeatures without RecordedBoxes or QueryBoxes, got UniformBoxes"),
    "recorded features of other queries": (lambda: rows().replace(evaluator=RecordedFeatures(np.ones((4, 3, 1)), [1.0])).check(), r"features must have shape \[40, 3, d\], got \(4, 3, 1\)"),
    # Policies and their parts.
    "a radius for a fit": (lambda: run(ca.COSMOS(fit=PracticalRadius())), r"policy 'COSMOS': fit must be an object such as Window\(...\), StreamingNewton\(...\), ..., got PracticalRadius"),
    "a fit for an evaluator": (lambda: run(ca.COSMOS(evaluator=Window())), r"evaluator must be an object such as OnlineGLM\(\), got Window"),
    "a class of evaluators": (lambda: run(ca.QueryAll(evaluator=OnlineGLM)), "policy 'QueryAll': evaluator must be .*, got <class"),
    "a fit for a radius": (lambda: run(ca.COSMOS(radius=Window())), r"radius must be an object such as PracticalRadius\(...\), TheoreticalRadius\(...\), ..., got Window"),
    "a number for exploration": (lambda: run(ca.COSMOS(exploration=3)), r"exploration must be an object such as WarmUp\(...\), DecayingExploration\(...\), ..., got 3"),
    "no ridge of requests": (lambda: run(ca.COSMOS(eta1=0.0)), "eta1 must be above 0, got 0"),
    "no room for theta": (lambda: run(ca.QueryAll(evaluator_bound=0.0)), "evaluator_bound must be above 0, got 0"),
    "optimism above 1": (lambda: run(ca.COSMOS(deploy_optimism=2.0)), r"deploy_optimism must be in \[0, 1\], got 2"),
    "no horizon": (lambda: run(ca.COSMOS(horizon=0)), "horizon must be at least 1, got 0"),
    "a wrong setting in a grid": (lambda: run(jr.grid(with_constants, index=[0.1, -0.1])), "policy 'with_constants': index must be at least 0, got -0.1"),
    "negative plug-in": (lambda: run(ca.COSMOS(radius=PracticalRadius(plug_in=-1.0))), "plug_in must be at least 0, got -1"),
    "negative warm-up": (lambda: run(ca.COSMOS(exploration=WarmUp(-1))), "rounds must be at least 0, got -1"),
    "many bonuses without a grid": (lambda: run(ca.COSMOS(radius=PracticalRadius(index=np.ones(3)))), r"index must have shape \(\), got \(3,\)"),
    "mass above 1": (lambda: run(ca.COSMOS(radius=TheoreticalRadius(mass=1.5))), r"mass must be in \(0, 1\], got 1.5"),
    "no slope": (lambda: run(ca.COSMOS(radius=TheoreticalRadius(score_slope=0.0))), "score_slope must be above 0, got 0"),
    "negative spread": (lambda: run(ca.ThompsonSampling(radius=SampledRadius(-0.1))), "spread must be at least 0, got -0.1"),
    "one copy": (lambda: run(ca.COSMOS(radius=BootstrapRadius(copies=1))), "copies must be at least 2, got 1"),
    "a floor as a number": (lambda: run(ca.COSMOS(radius=BootstrapRadius(floor=0.1))), "floor must be a PracticalRadius, got 0.1"),
    "a window in a bootstrap": (lambda: run(ca.COSMOS(radius=BootstrapRadius(fit=Window()))), "fit must be a StreamingNewton, got Window"),
    "no window": (lambda: run(ca.COSMOS(fit=Window(size=0))), "size must be at least 1, got 0"),
    "no iterations": (lambda: run(ca.COSMOS(fit=Window(iterations=0))), "iterations must be at least 1, got 0"),
    "never renewed": (lambda: run(ca.COSMOS(fit=Window(every=0))), "every must be at least 1, got 0"),
    "negative ridge": (lambda: run(ca.COSMOS(fit=Window(ridge=-1.0))), "ridge must be at least 0, got -1"),
    "curvature above 1": (lambda: run(ca.COSMOS(fit=MomentEquations(floor=1.5))), r"floor must be in \[0, 1\], got 1.5"),
    "an exact window of nothing": (lambda: Window.exact(0), "horizon must be at least 1, got 0"),
    "no start": (lambda: run(ca.COSMOS(fit=StreamingNewton(start=0.0))), "start must be above 0, got 0"),
    "no ball": (lambda: run(ca.OnlineGradient(fit=GradientDescent(bound=0.0))), "bound must be above 0, got 0"),
    "no residuals": (lambda: run(ca.DistributionLearner(fit=LocationFamily(size=0))), "size must be at least 1, got 0"),
    "negative coins": (lambda: run(ca.EpsilonGreedy(exploration=DecayingExploration(-1.0))), "scale must be at least 0, got -1"),
    "negative rounds": (lambda: run(ca.ExploreThenCommit(exploration=ExplorationPhase(-1))), "rounds must be at least 0, got -1"),
    "half a block": (lambda: run(ca.OnlineGradient(exploration=BlockExploration(0.5))), "length must be a whole number at least 1, got 0.5"),
    "a horizon too long": (lambda: unscored(ca.COSMOS(evaluator=ExactGLM(capacity=9))), "capacity must be at least the horizon of the run, 10, got 9"),
    "a horizon too long for a baseline": (lambda: unscored(ca.QueryAll(evaluator=ExactGLM(capacity=5))), "capacity must be at least the horizon of the run, 10, got 5"),
    "no capacity": (lambda: unscored(ca.QueryAll(evaluator=ExactGLM(capacity=0))), "capacity must be at least 1, got 0"),
    "a frozen evaluator of known scores": (lambda: run(ca.COSMOS(evaluator=FrozenGLM([1.0, 1.0]))), "evaluator must not be frozen where scores are seen"),
    "a frozen evaluator of another size": (lambda: unscored(ca.COSMOS(evaluator=FrozenGLM([1.0]))), r"theta must have shape \(2,\), got \(1,\)"),
    "a frozen evaluator of NaN": (lambda: unscored(ca.COSMOS(evaluator=FrozenGLM([1.0, NAN]))), r"theta must be finite, got nan at index \(1,\)"),
    "thresholds of other boxes": (lambda: run(ca.Frugal(threshold=np.ones(3))), r"threshold must have one entry per model \(2\), got 3"),
    "a threshold that is no number": (lambda: run(ca.Frugal(threshold=NAN)), "threshold must be a number, or one for each box, got nan"),
    "no order": (lambda: run(ca.Frugal(order=[0, 0])), r"order must be a permutation of 0 to K - 1, got \[0, 0\]"),
    "an order of other boxes": (lambda: run(ca.Frugal(order=[0, 1, 2])), r"order must have one entry per model \(2\), got 3"),
    "a random threshold": (lambda: run(ca.RandomCascade(threshold=NAN)), "threshold must be finite, got nan"),
    "negative width": (lambda: run(ca.LinUCB(alpha=-1.0)), "alpha must be at least 0, got -1"),
    "no ridge": (lambda: run(ca.LinUCB(ridge=0.0)), "ridge must be above 0, got 0"),
    "the optimum of nothing": (lambda: ca.Oracle.of(5), "env must be a CascadeEnv, got 5"),
    "the optimum of a number": (lambda: run(ca.Oracle(5)), "policy 'Oracle': env must be a CascadeEnv, got 5"),
    "the optimum of another cascade": (lambda: run(ca.Oracle.of(ca.uniform_cascade(3, 2))), "env must have num_models=2, as the environment of the run, got 3"),
    "the optimum of another evaluator": (lambda: unscored(ca.StaticIndex.of(custom())), "env must have feature_dim=2, as the environment of the run, got 0"),
    "a model too many": (lambda: run(ca.BestSingle(custom(), 2)), "model must be from 0 to 1, got 2"),
    "half a model alone": (lambda: run(ca.BestSingle(custom(), 0.5)), "model must be a whole number from 0 to 1, got 0.5"),
    # What is computed on the host.
    "values of nothing": (lambda: single_values(5), "env must be a CascadeEnv, got 5"),
    "costs of nothing": (lambda: cost_order(5), "env must be a CascadeEnv, got 5"),
    "a threshold for nothing": (lambda: ca.tuned_threshold(5), "env must be a CascadeEnv, got 5"),
    "a threshold on no draws": (lambda: ca.tuned_threshold(custom(), number=0), "number must be at least 1, got 0"),
    "a value of recorded queries": (lambda: ca.oracle_value(rows(), [1.0, 0.0, 0.0]), "oracle_value needs a distribution of scores, got recorded ones"),
    "a value of another request": (lambda: ca.oracle_value(custom(), [1.0]), r"psi must have shape \(2,\), got \(1,\)"),
    "a plan for a distribution": (lambda: ca.joint_plan(custom()), "joint_plan needs recorded rows that all models share"),
    "a plan for rows of their own": (lambda: ca.joint_plan(rows()), "joint_plan needs recorded rows that all models share"),
    "a plan for many histories": (lambda: ca.joint_plan(ca.replay_cascade(np.random.default_rng(0).random((200, 3)), np.ones((200, 3)), np.zeros(200), cost_weight=0.1, joint=True)), "env must have at most 2,097,152 histories .* for an exact optimum, got 8,120,601"),
    "a plan of other rows": (lambda: run(ca.JointOracle.of(rows(joint=True)), custom()), r"decisions must be for 2 models and 2 groups, as the rows of the run, got \(3, 3\)"),
    "a list of nothing": (lambda: ca.best_list(np.zeros((0, 2)), np.zeros((0, 2))), r"scores must have shape \[N, K\], got \(0, 2\)"),
    "a list for other costs": (lambda: ca.Frugal.fit(np.ones((4, 2)), np.ones((4, 3))), r"costs must have shape \(4, 2\), got \(4, 3\)"),
    "a rule without features": (lambda: ridge_rule(3, 3, 0), "feature_dim must be at least 1, got 0"),
    "a bound without a ridge": (lambda: potential_bound(10, 3, 1.0, 0.0), "ridge must be above 0, got 0"),
    "a bound of negative samples": (lambda: potential_bound(-1, 3, 1.0, 1.0), "number must be at least 0, got -1"),
    "a bound for nothing": (lambda: ca.regret_bound(5, 100), "spec must be a CascadeSpec, got 5"),
    "a residual of a stream": (lambda: residual(custom(), ca.COSMOS(fit=StreamingNewton()), (), (), 0), "residual needs a policy with an index estimator that stores samples"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_refused(name):
    make, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        make()


def test_the_right_input_is_not_refused():
    assert custom(names=["a", "b"], cost_weight=2, evaluator=np.int64(2)).spec.model_names == ("a", "b")
    ca.Frugal(threshold=np.inf).check()
    ca.Frugal(threshold=[0.5, np.inf], order=[1, 0]).check_spec(custom().spec)
    ca.COSMOS(evaluator=ExactGLM(capacity=5)).check_spec(spec_for(custom(), 100))  # Not used where scores are seen.
    TwoTimesContexts(RecordedContexts([[1.0, 0.0]]), UniformContexts(2), 3.0).check()
    assert rows(names=("a", "b", "c"), joint=np.bool_(True)).boxes.joint


def test_costs_that_no_score_can_pay_are_warned_of():
    with pytest.warns(UserWarning, match="no index is above 0 .*: no call is worth its cost.*cost_weight=10000"):
        rows(cost_weight=1e4)
    with pytest.warns(UserWarning, match="no index is above 0"):
        custom(cost_weight=50.0)
