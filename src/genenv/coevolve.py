"""The loop: two players, one round after the other.

    orders -> candidates -> verdicts -> groups -> p_hat and R_env -> two updates -> pools

`recipe = "paper"` makes each step that of arXiv 2512.19682 (Algorithm 1); the configuration says where the project's own
recipe departs from it.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from genenv.alarms import alarms, usual_variety, variety
from genenv.chat import ChatFormat
from genenv.config import WARMUP_BATCH, Config
from genenv.domains.base import Domain
from genenv.edits import outcome
from genenv.engines.base import PLAYERS, AdamParams, Engine, Loss
from genenv.errors import StaleSampleError
from genenv.gate import Gate
from genenv.pools import MIN_LAG, Pools
from genenv.rewards import SOLVED, empirical_success, task_reward, without_ends
from genenv.rollouts import PlayConfig, demonstration, play
from genenv.seeds import by_family
from genenv.simulator import plan, write
from genenv.sources import SET_SEED, given, groups, quota, turn
from genenv.store import CandidateRecord, Store
from genenv.types import Candidate, Chat, Datum, Group, Json, Seed, Task, derive_seed
from genenv.updates import grpo_data, has_signal, normalized, rwr_data, rwr_weights, scaled, shared, with_kl

Progress = Callable[[str, Mapping[str, Json]], None]
"""Called with the name of a finished stage and its figures; "round" comes with the round's metrics, "alarm" with a
`message` when the simulator shows signs of collapse."""


@dataclass
class Round:
    """What one round has produced so far."""

    number: int
    records: list[CandidateRecord] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    divisors: dict[str, float] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)
    metrics: dict[str, Json] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def fresh(self) -> list[Group]:
        return [g for g in self.groups if not g.replayed]

    def divisor(self, record: CandidateRecord) -> float:
        """What a rewarded task's weight is divided by: near-identical tasks, itself included; more in a stuck family."""
        assert record.task is not None
        return self.divisors[record.task.id]


class CoEvolution:
    """A run: configuration, engine, domain, and the state that grows. `run` plays the rounds that are left."""

    def __init__(
        self, config: Config, engine: Engine, domain: Domain, seeds: Sequence[Seed], store: Store, progress: Progress
    ) -> None:
        self.config = config
        self.engine = engine
        self.domain = domain
        self.store = store
        self.progress = progress
        self.seeds = by_family(seeds)
        self.heldout = domain.heldout(config.eval.tasks, derive_seed("heldout"))
        self.gate = self._new_gate()
        clusters = [self.gate.add(domain.build(seed.spec)) for seed in seeds]
        if config.curriculum.source == "seeds":
            self.gate = self._new_gate()  # they are the candidates
        self.usual_variety = usual_variety(clusters, config.simulator.tasks, random.Random(derive_seed("variety")))
        self.pools = Pools()
        self.agent = engine.policy("agent")
        self.simulator = engine.policy("simulator")
        self._played = PlayConfig(
            config.agent.group_size, config.agent.max_tokens, config.agent.max_turns, context=engine.context
        )

    def _new_gate(self) -> Gate:
        return Gate(self.domain, self.heldout, fitting(self.engine.chat, self.config.agent.max_prompt_tokens))

    def run(self, resume: bool = False, warn: Callable[[str], None] = lambda message: None) -> None:
        """Play all rounds that are not in the store yet."""
        start = self._load(warn) if resume else None
        if start is None:
            self.warm_up()
            self._evaluate(0)
            self.store.save_checkpoint(0, self._save)
        for number in range((start or 0) + 1, self.config.rounds + 1):
            self.play_round(number)

    def warm_up(self) -> None:
        """Supervised steps on the seeds, for base models that do not know the formats yet."""
        this = Round(0)
        agent, simulator = self.config.agent, self.config.simulator
        known = sorted((s for family in self.seeds.values() for s in family), key=lambda s: s.id)
        for step in range(agent.warmup):
            chosen = random.Random(self._key(this, "warmup", step)).sample(known, min(WARMUP_BATCH, len(known)))
            solved = [demonstration(self.engine.chat, self.domain, self.domain.build(s.spec)) for s in chosen]
            self.agent.forward_backward(normalized(solved), Loss("cross_entropy"))
            self.agent.optim_step(AdamParams(agent.warmup_lr))
            self.progress("warm_up", {"step": step + 1})
        for step in range(simulator.warmup):
            data = normalized(self._anchor(this, WARMUP_BATCH, step))
            self.simulator.forward_backward(data, Loss("cross_entropy"))
            self.simulator.optim_step(AdamParams(simulator.warmup_lr))
            self.progress("warm_up", {"step": agent.warmup + step + 1})

    def _supervised(self, chat: Chat, text: str) -> Datum:
        """A chat and the text that is to follow it, weight 1 on each token of the text and its end."""
        prompt = self.engine.chat.encode(chat)
        own = (*self.engine.chat.encode_text(text), self.engine.chat.eos)
        return Datum(prompt + own, (0.0,) * len(prompt) + (1.0,) * len(own), len(prompt))

    def play_round(self, number: int) -> None:
        """One round, committed and checkpointed."""
        this = Round(number)
        for stage in (self.generate, self.interact, self.reward):
            self._play_stage(this, stage)
        if self.engine.concurrent:  # the updates are of two adapters; only the simulator's reads the store
            with ThreadPoolExecutor(1) as pool:
                agent = pool.submit(self._play_stage, this, self.update_agent)
                self._play_stage(this, self.update_simulator)
                agent.result()
        else:
            self._play_stage(this, self.update_agent)
            self._play_stage(this, self.update_simulator)
        self._play_stage(this, self.remember)
        last = number == self.config.rounds
        if number % self.config.eval.every == 0 or last:
            begin = time.perf_counter()
            this.metrics["heldout"] = self._evaluate(number)
            this.seconds["evaluate"] = time.perf_counter() - begin
        timing = {"seconds": this.seconds, "peak_memory_mb": peak_memory_mb()}
        self.store.commit_round(number, this.records, this.groups, this.metrics, timing)
        if number % self.config.checkpoint_every == 0 or last:
            self.store.save_checkpoint(number, self._save)
        self.progress("round", {**this.metrics, **timing})

    def _play_stage(self, this: Round, stage: Callable[[Round], None]) -> None:
        begin = time.perf_counter()
        stage(this)
        this.seconds[stage.__name__] = time.perf_counter() - begin
        self.progress(stage.__name__, dict(this.metrics))  # another stage may go on writing

    # -- the stages --------------------------------------------------------------------------------------------

    def _key(self, this: Round, *parts: object) -> int:
        return derive_seed(self.config.seed, this.number, *parts)

    def generate(self, this: Round) -> None:
        """pi_env writes candidates, in each round or a set in round 1; the gate admits some."""
        count, asks = quota(self.config, this.number, sum(map(len, self.seeds.values())), len(self.pools.train))
        for ask in range(asks):
            if missing := count - sum(r.verdict.admitted for r in this.records):
                if self.config.curriculum.source == "privileged":
                    self._draw(this, missing, ask)
                else:
                    self._admit(this, self._ask(this, missing, ask))
        reasons = Counter(r.verdict.reason for r in this.records)
        admitted = reasons.pop("admitted", 0)
        this.metrics |= {
            "round": this.number,
            "candidates": len(this.records),
            "admitted": admitted,
            "rejected": dict(sorted(reasons.items())),
            "simulator_tokens": sum(len(r.candidate.sample.tokens) for r in this.records),
        }
        self._watch(this)

    def _ask(self, this: Round, count: int, ask: int) -> list[Candidate]:
        """The first candidates of a round (`ask` 0), or some more. All seeds come at once."""
        config, curriculum = self.config.simulator, self.config.curriculum
        if curriculum.source == "seeds":
            return [given(seed) for family in sorted(self.seeds) for seed in self.seeds[family]]
        again = (ask,) if ask else ()
        orders = plan(self.seeds, self.pools, self._parent, curriculum, count, self._key(this, "plan", *again))
        key = self._key(this, "write", *again)
        return write(self.simulator, self.simulator.chat, self.domain, orders, config, key)

    def _draw(self, this: Round, count: int, ask: int) -> None:
        """Tasks as held-out tasks are drawn, with what simulators may not use in them, through the gate's proof."""
        for task in self.domain.heldout(count, derive_seed(SET_SEED, self.config.seed, ask)):
            candidate = given(Seed(task.family, task.spec))
            this.records.append(CandidateRecord(candidate, self.gate.judge(task), task))

    def _admit(self, this: Round, candidates: Sequence[Candidate]) -> None:
        for candidate in candidates:
            edited = self.store.task(candidate.parent) if candidate.parent is not None else None
            task, verdict = self.gate.admit(candidate, edited)
            this.records.append(CandidateRecord(candidate, verdict, task))

    def _watch(self, this: Round) -> None:
        """Alarms about all tasks of the round, rejected duplicates included."""
        curriculum = self.config.curriculum
        built = [(r.task.family, r.candidate.family, r.verdict.cluster) for r in this.records if r.task is not None]
        written, asked, clusters = ([b[i] for b in built] for i in range(3))
        found = alarms(written, asked, clusters, self.usual_variety, curriculum.alarm_share, curriculum.alarm_variety)
        this.metrics |= {"variety": variety(clusters), "alarms": found}
        for message in found:
            self.progress("alarm", {"round": this.number, "message": message})

    def _parent(self, task_id: str) -> tuple[Seed, float | None]:
        task, first = self.store.task(task_id), self.store.first_success(task_id)
        return Seed(task.family, task.spec), first[1] if first else None

    def interact(self, this: Round) -> None:
        """pi_agent tries every admitted task, and some from D_train again: first those that were edited."""
        fresh = [r.task for r in this.records if r.verdict.admitted and r.task is not None]
        if self.config.curriculum.source != "simulator":
            whole = fresh or list(self.store.admitted())
            fresh = turn(whole, this.number, self.config.simulator.tasks, self.config.seed)
        rng = random.Random(self._key(this, "replay"))
        edited = dict.fromkeys(t.parent for t in fresh if t.parent is not None)
        wanted = self.config.simulator.tasks if self.config.simulator.fill else len(fresh)
        count = groups(wanted, self.config.agent.replay) - len(fresh)
        drawn = [i for i in self.pools.train.draw(count, rng) if i not in edited]
        ids = [*edited, *drawn[: max(0, count - len(edited))]]
        tasks = fresh + [self.store.task(i) for i in ids]
        attempts = play(self.agent, self.engine.chat, self.domain, tasks, self._played, self._key(this, "play"))
        this.groups = [
            Group(task, tuple(trajectories), replayed=i >= len(fresh))
            for i, (task, trajectories) in enumerate(zip(tasks, attempts, strict=True))
        ]

    def reward(self, this: Round) -> None:
        """p_hat and R_env of the fresh tasks (Eq. 2 and 3). Rejected candidates have neither."""
        curriculum = self.config.curriculum
        success = {g.task.id: empirical_success(g.rewards) for g in this.fresh}
        known = [p for p in success.values() if p is not None]
        by_fam: dict[str, list[float]] = {}
        for group in this.fresh:
            if (p := success[group.task.id]) is not None:
                by_fam.setdefault(group.task.family, []).append(p)
        for i, record in enumerate(this.records):
            if record.task is None or not record.verdict.admitted or (own := success.get(record.task.id)) is None:
                continue
            p_hat = {"task": own, "family": fmean(by_fam[record.task.family]), "batch": fmean(known)}[curriculum.p_hat]
            reward = task_reward(curriculum.reward, p_hat, curriculum.alpha, curriculum.beta)
            this.records[i] = replace(record, p_hat=own, reward=reward)
        self._judge_edits(this)
        measured = [(task, p) for task, p in success.items() if p is not None]
        kept = without_ends([p for _, p in measured], curriculum.drop)
        this.dropped = {task for task, _ in measured} - {measured[i][0] for i in kept}
        rewarded = [r for r in this.records if r.reward is not None]
        sizes = self.pools.cluster_sizes([r.verdict.cluster for r in rewarded], curriculum.share)
        stuck = set(self.pools.stuck())
        this.divisors = {
            r.task.id: n / (curriculum.stuck if r.task.family in stuck else 1.0)
            for r, n in zip(rewarded, sizes, strict=True)
            if r.task is not None
        }
        trajectories = [t for g in this.groups for t in g.trajectories]
        replayed = [p for g in this.groups if g.replayed and (p := empirical_success(g.rewards)) is not None]
        this.metrics |= {
            "success": fmean(known) if known else None,
            "success_replayed": fmean(replayed) if replayed else None,
            "families": {f: {"tasks": len(ps), "success": fmean(ps)} for f, ps in sorted(by_fam.items())},
            "solved_all": sum(p == 1.0 for p in known),
            "solved_none": sum(p == 0.0 for p in known),
            "tasks_in_band": sum(0.4 <= p <= 0.6 for p in known),
            "dropped": len(this.dropped),
            "useful_groups": sum(has_signal(g) for g in this.groups),
            "groups": len(this.groups),
            "unscored": sum(t.score.value is None for t in trajectories),
            "simulator_reward": _mean([r.reward for r in rewarded if r.reward is not None]),
            "simulator_earned": sum((r.reward or 0.0) / this.divisor(r) for r in rewarded),
            "agent_rollouts": len(trajectories),
            "agent_tokens": sum(t.written for t in trajectories),
            "prompt_length": _mean([t.prompt_length for t in trajectories]),
            "response_length": _mean([t.written for t in trajectories]),
            "cut_off": sum(t.stop == "length" for t in trajectories),
        }

    def _judge_edits(self, this: Round) -> None:
        """Edits that did not move success as they were asked to earn nothing."""
        before = {g.task.id: empirical_success(g.rewards) for g in this.groups if g.replayed}
        counts: dict[str, Counter[str]] = {}
        for i, record in enumerate(this.records):
            if (parent := record.candidate.parent) is None:
                continue
            count = counts.setdefault(record.candidate.direction, Counter())
            count["asked"] += 1
            if record.verdict.admitted:
                found = outcome(record.candidate.direction, before[parent], record.p_hat)
                count["admitted"] += 1
                count[found] += 1
                reward = record.reward if found == "accepted" else None
                this.records[i] = replace(record, outcome=found, reward=reward)
        this.metrics["edits"] = {d: dict(sorted(c.items())) for d, c in sorted(counts.items())}

    def update_agent(self, this: Round) -> None:
        """GRPO on the groups with variance, in `steps` optimizer steps."""
        config = self.config.agent
        for trajectory in (t for g in this.groups for t in g.trajectories):
            if trajectory.policy_version != self.agent.version:
                raise StaleSampleError(
                    f"a rollout has policy version {trajectory.policy_version}, the agent is at {self.agent.version}"
                )
        useful = [g for g in this.groups if has_signal(g) and g.task.id not in this.dropped]
        random.Random(self._key(this, "shuffle")).shuffle(useful)
        loss = Loss(config.loss, config.clip)
        lr = config.lr * (1.0 - (1.0 - config.lr_final) * (this.number - 1) / max(1, self.config.rounds - 1))
        norms, kls, ratios, clipped = [], [], [], []
        steps = min(config.steps, len(useful)) if config.train else 0
        for step in range(steps):
            data = grpo_data(useful[step::steps], config.normalize)
            if config.kl:
                anchored = with_kl(data, self.engine.base_logprobs(data), config.kl)
                data = anchored.data
                kls.append(anchored.kl)
            stats = self.agent.forward_backward(data, loss)
            if (norm := self.agent.optim_step(AdamParams(lr))) is not None:
                norms.append(norm)
            ratios.append(stats.ratio)
            clipped.append(stats.clipped)
        this.metrics |= {
            "agent_lr": lr,
            "agent_grad_norm": _mean(norms),
            "agent_kl": _mean(kls),
            "agent_ratio": _mean(ratios),
            "agent_clipped": _mean(clipped),
            "agent_version": self.agent.version,
        }

    def update_simulator(self, this: Round) -> None:
        """RWR on this round's tasks, with replay from D_env and an anchor of seeds where configured."""
        config, curriculum = self.config.simulator, self.config.curriculum
        rewarded = [r for r in this.records if r.reward is not None and r.p_hat is not None]
        chosen = [r for r in rewarded if not curriculum.mixed_only or 0.0 < (r.p_hat or 0.0) < 1.0]
        chosen = [r for r in chosen if r.task is not None and r.task.id not in this.dropped]
        mean = this.metrics["success"]
        aligned = mean is not None and (curriculum.k_min is None or abs(mean - curriculum.alpha) <= curriculum.k_min)
        norm = kl = None
        update = config.train and aligned and bool(chosen)
        if update:
            rng = random.Random(self._key(this, "simulator"))
            old = self.pools.env.draw(round(config.replay * len(chosen)), rng)
            candidates = [r.candidate for r in chosen] + [self.store.candidate(i) for i in old]
            # D_env was drawn in proportion to R_env already, so its share of the weight is even
            weights = rwr_weights([r.reward or 0.0 for r in chosen], config.weight_temperature)
            weights = shared(weights, [this.divisor(r) for r in chosen])
            data = rwr_data(candidates, weights + [1.0] * len(old))
            anchor = self._anchor(this, round(config.anchor * len(chosen)))
            if config.kl:
                fresh = data[: len(chosen)]
                anchored = with_kl(fresh, self.engine.base_logprobs(fresh), config.kl)
                data = anchored.data + data[len(chosen) :]
                kl = anchored.kl
            if anchor:
                share = len(anchor) / (len(anchor) + len(data))
                data = scaled(data, 1.0 - share) + scaled(normalized(anchor), share)
            self.simulator.forward_backward(data, Loss("cross_entropy"))
            norm = self.simulator.optim_step(AdamParams(config.lr))
        this.metrics |= {
            "simulator_updated": update,
            "simulator_trained_on": len(chosen) if update else 0,
            "simulator_grad_norm": norm,
            "simulator_kl": kl,
            "simulator_version": self.simulator.version,
        }

    def _anchor(self, this: Round, count: int, step: int = 0) -> list[Datum]:
        """Seeds as the simulator would have to write them: what keeps imitation of oneself from drifting."""
        data = []
        rng = random.Random(self._key(this, "anchor", step))
        families = sorted(self.seeds)
        for i in range(count):
            family = families[i % len(families)]
            example, target = rng.choice(self.seeds[family]), rng.choice(self.seeds[family])
            way, success = self.domain.direction(example, target), self.pools.success(family)
            chat, _ = self.domain.simulator_chat(example, success, way, self._key(this, "anchor", step, i), target)
            data.append(self._supervised(chat, json.dumps(target.spec, separators=(",", ":"), ensure_ascii=False)))
        return data

    def remember(self, this: Round) -> None:
        """D_train gets every tried task, D_env what it earned; the families' posteriors and gains move."""
        curriculum = self.config.curriculum
        rewarded = [r for r in this.records if r.reward is not None]
        earned = shared([1.0] * len(rewarded), [this.divisor(r) for r in rewarded])
        for group in this.fresh:
            if empirical_success(group.rewards) is not None:
                self.pools.train.put(group.task.id, 1.0)
        for record, factor in zip(rewarded, earned, strict=True):
            if record.reward is not None and record.task is not None:
                self.pools.env.put(record.task.id, record.reward * factor)
        self.pools.remember_clusters([r.verdict.cluster for r in rewarded], curriculum.share)
        counts: dict[str, tuple[int, int]] = {}
        for group in this.groups:
            scored = [r for r in group.rewards if r is not None]
            wins, losses = counts.get(group.task.family, (0, 0))
            won = sum(r >= SOLVED for r in scored)
            counts[group.task.family] = (wins + won, losses + len(scored) - won)
        self.pools.observe(counts, curriculum.memory)
        self.pools.measured_again(self._measured_again(this))
        this.metrics |= {
            "pool_train": len(self.pools.train),
            "pool_env": len(self.pools.env),
            "stuck_families": self.pools.stuck(),
        }

    def _measured_again(self, this: Round) -> dict[str, list[tuple[float, float]]]:
        """(first, present) success of the replayed tasks that have been trained on for a while, by family."""
        pairs: dict[str, list[tuple[float, float]]] = {}
        for group in (g for g in this.groups if g.replayed):
            now, first = empirical_success(group.rewards), self.store.first_success(group.task.id)
            if now is not None and first is not None and this.number - first[0] >= MIN_LAG:
                pairs.setdefault(group.task.family, []).append((first[1], now))
        return pairs

    # -- evaluation, saving, loading ---------------------------------------------------------------------------

    def _evaluate(self, number: int) -> float | None:
        """Mean score on the held-out tasks; an unscored attempt counts as wrong here."""
        config = self.config.eval
        if not self.heldout:
            return None
        settings = replace(self._played, group_size=config.rollouts, temperature=config.temperature)
        attempts = play(
            self.agent,
            self.engine.chat,
            self.domain,
            self.heldout,
            settings,
            derive_seed(self.config.seed, "eval", number),
        )
        self.store.commit_evaluation(number, self.heldout, attempts)
        score = fmean(t.score.value or 0.0 for group in attempts for t in group)
        self.progress("evaluate", {"round": number, "heldout": score})
        return score

    def _save(self, folder: Path) -> None:
        for player in PLAYERS:
            (folder / player).mkdir()
            self.engine.policy(player).save_state(folder / player)
        (folder / "pools.json").write_text(json.dumps(self.pools.state()), "utf-8")

    def _load(self, warn: Callable[[str], None]) -> int | None:
        """Restore the newest complete checkpoint; returns its round, None if there is none."""
        found = self.store.latest_checkpoint(warn)
        if found is None:
            self.store.rewind(-1)
            return None
        number, folder = found
        self.store.rewind(number)
        for player in PLAYERS:
            self.engine.policy(player).load_state(folder / player)
        self.pools = Pools.from_state(json.loads((folder / "pools.json").read_text("utf-8")))
        for task in self.store.admitted():
            self.gate.add(task)
        return number


def fitting(chat: ChatFormat, limit: int | None) -> Callable[[Task], bool]:
    """Whether a task's prompt has at most `limit` tokens."""
    return lambda task: limit is None or len(chat.encode(Chat(task.messages, task.tools))) <= limit


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def peak_memory_mb() -> float:
    """Peak resident memory of this process so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
