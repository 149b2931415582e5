"""The training loop: from a Run to a model folder, resumable at any step."""

import math
import time
from collections.abc import Collection, Iterator
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Any

import torch
from torch import Tensor

from nearkin.compose.metrics import METRICS
from nearkin.compose.points import Points
from nearkin.data.checksums import forget, write_json, wrong
from nearkin.data.dataset import Dataset
from nearkin.data.disk import FileDamagedError, explain_full_disk
from nearkin.data.loader import Loader, try_files
from nearkin.data.lock import owned
from nearkin.models.feature_cache import has_contents
from nearkin.models.folder import kept_references
from nearkin.models.weights import read_tensors
from nearkin.search import nearest
from nearkin.train import checkpoint, ranks
from nearkin.train.assemble import Cut, Parts, Whole, assemble, build_whole, captured, cut, set_training
from nearkin.train.card import write_card
from nearkin.train.config import Run
from nearkin.train.data_checks import sampler_warning
from nearkin.train.encoder import WHY_PROXIES, Start, as_embedding, begins_with_features, compares, objective_on_unit_length
from nearkin.train.folder import check_folder, device_name, opened, resuming, rooted, save_weights, saved_form, write_run
from nearkin.train.frozen import Frozen, begin, check_views, featured_by, views_by
from nearkin.train.interrupt import Interrupt, held
from nearkin.train.objective_choice import without_labels
from nearkin.train.optimizers import set_rate
from nearkin.train.rank_shards import mine, reads_own
from nearkin.train.recipes import in_bfloat16, taken
from nearkin.train.reporter import Log, Reporter, Silence
from nearkin.train.rounds import CollapsedError, rounds_for, steering_of
from nearkin.train.rows import RowTraining
from nearkin.train.spread_bank import collect
from nearkin.train.state import capture_state, mark_of, restore_state
from nearkin.train.text_encoder import with_tokenizer
from nearkin.train.tuning import load_merged, merged_state
from nearkin.train.validate import (
    against_bank,
    all_alike,
    at_chance,
    dimensions_used,
    embed_all,
    figures_of,
    known_points,
    noise,
    points_of,
    reported,
    score,
    validate,
)
from nearkin.train.whole_set import whole_set_step

LOOK_EVERY = 20  # steps between two looks at the loss on CUDA, where a look makes the host wait
RISEN = 0.05  # share of the first epoch's loss by which a later one may exceed it without a warning
LEARNED = 0.01  # a loss below this has nothing left to learn, and moves by chance
COLLAPSED = 1.5  # dimensions used, below which an embedding that needs two or more is worth a warning
LONG = 2048  # points of a chunk when the whole training set is one batch


class TrainingStopped(RuntimeError):  # noqa: N818
    """The training had to stop; checkpoints saved before are kept."""


def train(
    run: Run,
    folder: str | Path,
    *,
    data: Dataset | None = None,
    data_root: str | Path | None = None,
    reporter: Reporter | None = None,
    device: str | torch.device | None = None,
    resume: bool = False,
    given: Collection[str] | None = None,
) -> dict[str, Any]:
    """Train a run and write the model folder.

    The folder holds the weights, the configuration, the references, the metrics, a log and checkpoints. Ctrl-C or SIGTERM writes
    a checkpoint and then stops with KeyboardInterrupt; a second signal stops at once. The test part, if there is one, is evaluated
    once, at the end.

    Parameters
    ----------
    run : Run
        The configuration.
    folder : str or Path
        The model folder. It must not hold a training already, unless `resume`.
    data : Dataset, default=None
        Train on this data set instead of ``run.data.source``.
    data_root : str or Path, default=None
        Where data sets by name are looked for. None: where the run found them before, or else in the folder "data".
    reporter : Reporter, default=None
        Receives messages, steps and epochs. None reports nothing; log.jsonl is written in any case.
    device : str or torch.device, default=None
        Where to train. None takes a GPU if there is one.
    resume : bool, default=False
        Continue from the newest intact checkpoint in `folder`. On a CPU the result equals that of an uninterrupted training.
    given : collection of str, default=None
        Dotted names of the settings that the user chose: all others may be changed to suit the data, which is reported. None
        takes the run as it is.

    Returns
    -------
    dict
        The content of metrics.json: epochs, steps, seconds, the curve, and the results on the test part.

    Raises
    ------
    FileExistsError
        If `folder` holds a training or other files that would be overwritten.
    ValueError
        If run and data do not fit together.
    TrainingStopped
        If the loss becomes NaN or the embedding collapses; checkpoints are kept.

    See Also
    --------
    fit : A training loop in one function, without a folder.

    Examples
    --------
    >>> import tempfile
    >>> from nearkin.train import DataChoice, NetworkChoice, Run, train
    >>> run = Run(data=DataChoice("digits"), network=NetworkChoice("mlp", dimension=8), epochs=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     metrics = train(run, folder, device="cpu")
    >>> metrics["epochs"], metrics["steps"]
    (1, ...)
    """
    folder = Path(folder)
    run = rooted(run, data_root) if data is None else run
    rank, place = ranks.start(device)
    check_folder(folder, resume)
    ranks.wait_for_all()  # before the first of them writes there
    again = f"resume the training: `nearkin train --resume {quote(str(folder))}`"
    with owned(folder) if rank == 0 else nullcontext(), explain_full_disk(folder, again):
        if rank == 0:
            check_folder(folder, resume)  # again, as the only one: another training may have started here in the meantime
        return _trained(run, folder, data, reporter, place, rank, resume, given)


def _trained(
    run: Run,
    folder: Path,
    data: Dataset | None,
    reporter: Reporter | None,
    place: torch.device,
    rank: int,
    resume: bool,
    given: Collection[str] | None,
) -> dict[str, Any]:
    """`train`, by the owner of the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    log = Log(folder / "log.jsonl", reporter or Silence()) if rank == 0 else Silence()
    with resuming(resume):
        run, source = opened(run, data, log, given)
        if source.table is not None:
            return RowTraining(run, folder, cut(run, source), place, log, resume).write()
        if source.kind == "texts":
            run, source = with_tokenizer(run, source, folder, given, log)
        run = objective_on_unit_length(run, source)
        check_views(run)
        start, whole, features = None, None, None
        if run.network.pretrained and has_contents(source) and compares(run, source):
            whole = build_whole(run, source, place)
            images, features = featured_by(whole, run, source, folder, place, log)
            by_feature = cut(run, features, images)
            key = whole.about["features"]
            run, whole, start = _begun(run, whole, images, by_feature, given, log)
            source = features if run.network.tune in ("none", "head") else images
        parts_of_data = by_feature if source is features else cut(run, source)
        if run.network.tune == "none" or (start is not None and run.network.tune == "head" and source.supervision == "ids"):
            return Frozen(run, folder, whole, parts_of_data, start, log).write()
        run = in_bfloat16(taken(run, parts_of_data.train, given, log), place.type == "cuda", given, log)
        if whole is not None and run.network.tune != "head":
            whole.about.pop("features", None)  # those of the body before it is trained
        views = views_by(run, whole, cut(run, images).train, folder, place, log) if whole is not None and run.network.views else None
        parts = assemble(run, parts_of_data.train, place, whole, features=whole is not None and run.network.tune == "head", views=views)
        log.message(f"objective {parts.about['objective']}: {parts.about['why']}")
        if whole is None and source.kind == "vectors" and parts.about["prepare"]:
            log.message("the columns of the vectors are standardized; preprocess.name=none leaves them as they are")
        if poor := sampler_warning(parts.objective, parts.sampler, parts_of_data.train):
            log.message(poor)
        loop = Loop(run, folder, parts, parts_of_data, log, rank, start)
        loop.try_held_out()
        found = checkpoint.newest(folder / "checkpoints", log.message) if resume else None
        if found is not None:
            loop.restore(found)
            log.message(f"resuming after step {loop.steps}")
        elif resume:
            log.message("no checkpoint to resume from: starting from the beginning, with the same settings")
        if rank == 0:  # not before it is known that the checkpoint is one of these data: the folder may hold a model of others
            write_run(folder, run)
            write_json(folder / "model.json", parts.about)
            write_json(folder / "split.json", parts_of_data.split)
        ranks.align(parts.network)
        with held(loop.interrupt) if ranks.count() == 1 else nullcontext():  # several ranks cannot agree on a step to stop after
            loop.run_rounds()
        metrics = loop.finish()
        if start is not None and whole is not None and start.beats(loop.best):
            log.message(f"on the validation part nothing is better than {start.lines()[0]}: the model is the frozen encoder")
            untouched = build_whole(run, images, place)  # the body may have been trained
            untouched.about["features"] = key
            return Frozen(run, folder, untouched, by_feature, start, log, metrics["curve"]).write()
        return metrics


def _begun(
    run: Run, whole: Whole, images: Dataset, by_feature: Cut, given: Collection[str] | None, log: Reporter
) -> tuple[Run, Whole, Start]:
    """What training from an encoder starts from: the linear map as the head, or no head where that is better for images."""
    place = next(whole.network.parameters()).device
    start = begin(run, whole, by_feature, log)
    if images.kind != "images" or not begins_with_features(run, start, given):
        return run, whole, start
    alone = as_embedding(run, by_feature.train, log)
    whole = build_whole(alone, images, place)
    whole.about["why"] = whole.about["why"] if alone.objective == run.objective else WHY_PROXIES
    return alone, whole, start._replace(begun=False)


class Loop:
    """The state of a training, and its epochs."""

    def __init__(self, run: Run, folder: Path, parts: Parts, data: Cut, log: Reporter, rank: int, start: Start | None = None) -> None:
        self.run, self.folder, self.parts, self.data, self.log, self.rank = run, folder, parts, data, log, rank
        self.held = None if data.validation is None else self._loader(data.validation)
        self.epoch = self.steps = self.images = 0
        self.total, self.counted = 0.0, 0  # of the running epoch's losses
        self.best, self.waited = -math.inf, 0
        self.start = start
        self.kept: dict[str, Any] = {}  # epoch and validation figure of the best weights
        self.warned = False  # of a collapse
        self.doubted = False  # warned of a rising loss, or of validation at chance
        self.curve: list[dict[str, Any]] = []
        self.seconds = 0.0
        self.began: float | None = None  # when the running epoch did; None between epochs
        self.saved_at, self.interrupt = time.monotonic(), Interrupt()
        self.whole = run.references == "training_set"
        self.mark = mark_of(data.train)
        self.views = run.views + (parts.step.teacher is not None)
        discovers = parts.objective.discovers
        self.rounds = rounds_for(run, discovers)
        self.paced = rounds_for(run, discovers and run.discovery.restart)  # where the schedule restarts
        self.steering = steering_of(run, parts.objective, parts.optimizer, data.train.labels)
        self.tested: Loader | None = None
        self.best_against_bank = 0.0
        self.step = captured(run, parts)
        self.steps_an_epoch = 1 if self.whole else len(parts.sampler)

    def _loader(self, part: Dataset) -> Loader:
        resident = -1 if reads_own(part) else int(self.run.data.resident_gigabytes * 2**30)
        return Loader(part, device=self.parts.step.generator.device, resident_bytes=resident)

    def try_held_out(self) -> None:
        """Read now what would first be read after the last epoch: an image of another size, or a damaged one, must not end a long training.

        Where files are skipped, all of them were tried already; the training part is read by the first epoch.
        """
        test = self.data.test if self.data.test is not None and reported(self.data.test) != "ids" else None
        streamed = self.data.validation if self.held is not None and self.held.resident is None else None
        for part in (streamed, test):
            if part is not None and self.run.data.on_error == "raise":
                try_files(part)

    def run_rounds(self) -> None:
        """The instance round and the rounds of discovery, or the one round of another objective.

        Where validation has not improved for `patience` epochs of the last round, that one ends early; the others are never cut short.
        """
        self.log.started(self.run.epochs * self.steps_an_epoch, self.steps)
        for number in range(self.rounds.of(self.epoch), len(self.rounds.shares)):
            if self.epoch == self.rounds.first_epoch(number):
                self.best, self.waited, self.kept = -math.inf, 0, {}  # what a round before has reached is no measure for this one
                if self.start is not None and self.start.begun and self.steps == 0:
                    self._keep_best(validate(self.parts, self.data.train, self.data.validation, self.held))  # the linear map, as epoch 0
            while self.epoch < self.rounds.first_epoch(number + 1) and not self._stalled(number):
                self.began, before = time.perf_counter(), self.steps
                self._look_around(number)
                self._show_sampler()
                self._one_epoch()
                took = time.perf_counter() - self.began
                self.seconds, self.began = self.seconds + took, None
                points = (self.steps - before) * (len(self.data.train) if self.whole else self.parts.sampler.batch)
                self._end_of_epoch(round(points / max(took, 1e-9)))
                self._maybe_save(last=self.epoch == self.run.epochs)

    def _look_around(self, number: int) -> None:
        """Discovery: look for neighborhoods where they are due; a checkpoint stays of where the round before has ended."""
        if self.steering is None or not self.steering.due(self.epoch):
            return
        if self.epoch == 0 and self.parts.objective.refresh_every:
            self._see_everything()
        if number and self.epoch == self.rounds.first_epoch(number):
            self._save(stays=f"round-{number - 1}")
        try:
            line = self.steering.look(self.epoch)
        except CollapsedError as stuck:
            why = f"the embedding has collapsed: before epoch {self.epoch + 1} {stuck}"
            raise TrainingStopped(f"{why}; {self._collapse_fix()}") from None
        if line is not None:
            self.log.message(line)

    def _show_sampler(self) -> None:
        """Show the present embeddings to a sampler that draws by them, before the first batch of an epoch."""
        sampler = self.parts.sampler
        if self.whole or not sampler.looks or sampler.position:
            return
        points = points_of(self.data.train, embed_all(self.parts.network, self.parts.loader, self.parts.step.prepare))
        affinity = METRICS[self.parts.about["metric"]]

        def neighbors(k: int) -> Tensor:
            return nearest(points, points, k, affinity, exclude_same_id=True).positions

        sampler.look(points.embeddings, neighbors)
        self.images += len(points.embeddings)

    def _see_everything(self) -> None:
        """The first pseudo-labels are those of the first weights."""
        embeddings = embed_all(self.parts.network, self.parts.loader, self.parts.step.prepare)
        self.parts.objective.update(embeddings, ids=self.data.train.ids)
        self.images += len(embeddings)

    def _stalled(self, number: int) -> bool:
        """Whether the last round is to end here, after a line that says so."""
        stalled = 0 < self.run.patience <= self.waited and number == len(self.rounds.shares) - 1
        if stalled:
            since = self.epoch - self.waited * self.run.validate_every
            self.log.message(f"stopped after epoch {self.epoch} of {self.run.epochs} (patience): validation was best after epoch {since}")
        return stalled

    def _one_epoch(self) -> None:
        set_training(self.parts.network, self.run.network)
        running: Tensor | None = None
        fresh = 0
        for ids, inputs in self._batches():
            rate = self.run.optimizer.learning_rate * self.paced.rate_factor(self.parts.schedule, self.steps, self.steps_an_epoch)
            set_rate(self.parts.optimizer, rate)
            loss = self._guarded(ids, inputs).double()
            running = loss if running is None else running + loss
            fresh += 1
            self.steps += 1
            self.images += len(ids) * self.views * ranks.count()
            if not loss.is_cuda or fresh >= LOOK_EVERY:
                self._look(running, fresh, rate)
                running, fresh = None, 0
                self._maybe_save()
        if running is not None:
            self._look(running, fresh, rate)

    def _batches(self) -> Iterator[tuple[Tensor, Tensor | None]]:
        """This rank's share of every batch: ids, and inputs where they are not on the device already."""
        device = self.parts.step.generator.device
        if self.whole:
            yield torch.arange(len(self.data.train), device=device), None
            return
        sampler = self.parts.sampler
        if self.parts.loader.resident is not None:
            for ids in sampler:
                yield mine(self.data.train, ids).to(device, non_blocking=True), None
            return
        # A streaming loader reads ahead; the sampler's position must count the batches that were trained on.
        ahead = islice(sampler.batches(sampler.epoch), sampler.position, None)
        for inputs, ids in self.parts.loader(mine(self.data.train, batch) for batch in ahead):
            sampler.position += 1
            yield ids, inputs
        sampler.epoch, sampler.position = sampler.epoch + 1, 0

    def _guarded(self, ids: Tensor, inputs: Tensor | None) -> Tensor:
        try:
            if self.whole:
                return whole_set_step(self.parts.step, ids, LONG)
            if self.run.chunk and self.run.chunk < len(ids):
                return whole_set_step(self.parts.step, ids, self.run.chunk, inputs)
            return self.step(ids, inputs)
        except ValueError as error:
            if "NaN or infinity" not in str(error):
                raise
            raise TrainingStopped(self._last_words(f"the embeddings hold NaN or infinity at step {self.steps + 1}")) from error

    def _look(self, running: Tensor, count: int, rate: float) -> None:
        """Read the losses since the last look; a NaN stops the training."""
        value = float(running)
        if not math.isfinite(value):
            raise TrainingStopped(self._last_words(f"the loss is {value / count} near step {self.steps}"))
        self.total, self.counted = self.total + value, self.counted + count
        last = getattr(self.parts.objective, "last", None)
        valid = {} if last is None or isinstance(last, dict) else {"valid": f"{last.valid}/{last.queries}"}
        self.log.step(self.steps, {"loss": value / count, "rate": rate, **valid})
        if self.steps == count:
            self._warn_about_first_steps()

    def _last_words(self, what: str) -> str:
        saved = checkpoint.name_of_newest(self.folder / "checkpoints")
        kept = f"; {saved} is kept, resume from it" if saved else "; nothing was saved yet"
        return f"{what}: lower the learning rate ({self.run.optimizer.learning_rate}) or warm it up longer{kept}"

    def _warn_about_first_steps(self) -> None:
        gradients = [p.grad for p in self.parts.network.parameters() if p.grad is not None]
        if gradients and all(float(g.abs().max()) == 0 for g in gradients):
            self.log.message("warning: all gradients are zero; everything may be too far apart (raise temperature, or use the log form)")
        last = getattr(self.parts.objective, "last", None)
        if last is not None and not isinstance(last, dict) and last.valid < last.queries / 2:
            self.log.message(
                f"warning: only {last.valid} of {last.queries} queries have a right neighbor in their batch; "
                "use larger batches or sampler.name=per_class"
            )

    def _end_of_epoch(self, points_per_second: int) -> None:
        self.epoch += 1
        mean = self.total / max(self.counted, 1)
        self.parts.schedule.epoch_ended(mean)
        self.total_loss = mean
        figures: dict[str, Any] = {"epoch": self.epoch, "loss": mean, "steps": self.steps, "points_per_second": points_per_second}
        self.total, self.counted = 0.0, 0
        if self.epoch % max(self.run.validate_every, 1) == 0 or self.epoch == self.run.epochs:
            found = validate(self.parts, self.data.train, self.data.validation, self.held)
            figures |= found | ({"validation points": known_points(self.data.validation)} if found else {})
            self._keep_best(found)
            self._doubt(found)
            self._watch_for_collapse(figures)
        self._look_as_released(figures)
        self.curve.append(figures)
        self.log.epoch(figures)

    def _look_as_released(self, figures: dict[str, Any]) -> None:
        """The authors' own figure: the best epoch of the last round on the test part, against the bank. It decides nothing here."""
        test = self.data.test
        if not self.run.discovery.released_protocol or test is None or test.labels is None:
            return
        if self.rounds.of(self.epoch - 1) == len(self.rounds.shares) - 1:
            self.tested = self.tested or self._loader(test)
            figures["test, against the bank"] = found = against_bank(self.parts, self.data.train, test, self.tested)
            self.best_against_bank = max(self.best_against_bank, found)

    def _watch_for_collapse(self, figures: dict[str, Any]) -> None:
        """An embedding in fewer than two dimensions, where the labels need more, has lost what tells neighbors apart."""
        figures["dimensions used"] = used = dimensions_used(self.parts)
        train = self.data.train
        needed = {"classes": len(train.classes) - 1, "numbers": len(train.target_names)}.get(train.supervision, self.run.network.dimension)
        if used < COLLAPSED and min(needed, self.run.network.dimension, len(train) - 1) >= 2 and not self.warned:
            self.warned = True
            self.log.message(
                f"warning: the embedding has collapsed: after epoch {self.epoch} it uses {used:.1f} of its {self.run.network.dimension} "
                f"dimensions; {self._collapse_fix()}"
            )

    def _collapse_fix(self) -> str:
        if all_alike(self.parts):
            return f"all {self.data.train.kind} are the same, and nothing can tell them apart: look at the data"
        if without_labels(self.parts.objective):
            return f"lower the learning rate, and see whether the {self.data.train.kind} differ enough to be told apart"
        return "lower the learning rate, or use an objective that also pushes points apart"

    def _doubt(self, found: dict[str, float]) -> None:
        """Warn once of a loss that rises, or of validation that is no better than guessing half-way through."""
        if self.doubted or without_labels(self.parts.objective) or not self.curve:
            return
        first, now = self.curve[0]["loss"], self.total_loss
        if self.epoch >= 3 and now > max(first + RISEN * abs(first), LEARNED):
            fix = f"lower the learning rate ({self.run.optimizer.learning_rate:g}), or let --find-rate choose it"
            self.log.message(f"warning: the loss has risen from {first:.3g} in the first epoch to {now:.3g} in epoch {self.epoch}; {fix}")
            self.doubted = True
        elif 2 * self.epoch >= self.run.epochs and (line := at_chance(found, self.data.train, self.data.validation)):
            self.log.message(f"warning: after epoch {self.epoch} of {self.run.epochs}, {line}")
            self.doubted = True

    def _keep_best(self, found: dict[str, float]) -> None:
        """Keep these weights if they are the best so far; of results within the noise of few validation points, the later."""
        value = score(found)
        if value is None:
            return
        self.waited = 0 if value > self.best else self.waited + 1
        points = known_points(self.data.validation)
        later = value >= self.best - noise(found, points)  # of equals the later: it has learned longer
        if value > self.best if self.start is not None else later:  # the first weights of an encoder have learned already
            self.best = max(value, self.best)
            self.kept = {"epoch": self.epoch, "figure": next(iter(found)), "value": abs(value), "points": points}
            if value < self.best:
                self.kept["best"] = abs(self.best)
            collect(self.parts.objective)
            if self.rank == 0 and not without_labels(self.parts.objective):  # labels that teach nothing choose nothing either
                save_weights(self.folder / "best.safetensors", merged_state(self.parts.whole))
                save_weights(self.folder / "best-objective.safetensors", self.parts.objective.state_dict())

    def _maybe_save(self, last: bool = False) -> None:
        """A checkpoint, when it is time for one, and when Ctrl-C was pressed, which is heard here."""
        stopping = self.interrupt.asked
        if not (last or stopping) and time.monotonic() - self.saved_at < self.run.checkpoint_seconds:
            return
        self._save()
        if stopping:
            raise KeyboardInterrupt

    def _save(self, stays: str = "") -> None:
        ranks.align(self.parts.network)
        collect(self.parts.objective)
        if self.rank == 0:
            tensors, state = capture_state(self.parts)
            standing = {"points": self.mark, "count": len(self.data.train), "loop": self._standing(), "run": saved_form(self.run).to_json()}
            checkpoint.save(self.folder / "checkpoints", self.steps, tensors, state | standing, stays=stays)
        self.saved_at = time.monotonic()

    def _standing(self) -> dict[str, Any]:
        names = ("epoch", "steps", "images", "total", "counted", "best", "waited", "kept", "curve", "best_against_bank")
        running = 0.0 if self.began is None else time.perf_counter() - self.began
        standing = {name: getattr(self, name) for name in names} | {"seconds": self.seconds + running}
        return standing | ({"steering": self.steering.state()} if self.steering else {})

    def restore(self, found: checkpoint.Checkpoint) -> None:
        """Resume from a checkpoint."""
        if found.state["points"] != self.mark:
            now, then = len(self.data.train), found.state.get("count")
            why = "files or labels have changed" if then in (None, now) else f"it started with {then:,}"
            fix = "Resume with the data that the training started with, or train into another folder"
            raise ValueError(f"the {now:,} points to learn from are not those of the checkpoint: {why}. {fix}")
        restore_state(self.parts, found.tensors, found.state)
        standing = dict(found.state["loop"])
        if self.steering is not None:
            self.steering.restore(standing.pop("steering"))
        for name, value in standing.items():
            setattr(self, name, value)
        self._set_damaged_aside()

    def _set_damaged_aside(self) -> None:
        """The best weights, if they are damaged: those of the epochs to come take their place."""
        paths = [self.folder / f"{name}.safetensors" for name in ("best", "best-objective")]
        there = [path for path in paths if path.exists()]
        if self.best == -math.inf or without_labels(self.parts.objective) or (len(there) == 2 and all(map(self._readable, paths))):
            return
        if self.rank == 0:
            for path in paths:
                forget(path, self.folder)
            for path in there:
                path.replace(path.with_suffix(".damaged"))
        self.best, self.waited = -math.inf, 0
        self.log.message("the best weights so far are damaged or missing; the best of the epochs to come are kept, or else the last ones")

    def _readable(self, path: Path) -> bool:
        try:
            read_tensors(path, "resume the training")
        except FileDamagedError:
            return False
        try:
            return not wrong(path, self.folder)
        except FileDamagedError:  # the checksums themselves; they are written again
            return True

    def finish(self) -> dict[str, Any]:
        """The last weights, the references of the weights that `load` gives back, and the one look at the test part, with those."""
        step, data, best = self.parts.step, self.data, self.folder / "best.safetensors"
        network = self.parts.network.eval()
        metrics: dict[str, Any] = {
            "epochs": self.epoch,
            "steps": self.steps,
            "images": self.images,  # through the network while it trained, all views
            "seconds": round(self.seconds, 3),
            "device": device_name(step.generator.device),
            "seed": self.run.seed,
            "weights": "best" if best.exists() else "last",
            **({"kept": self.kept} if best.exists() and self.kept else {}),
            "curve": self.curve,
        }
        metrics |= {} if self.start is None else self.start.as_dict()
        metrics |= {} if self.steering is None else {"rounds": self.steering.found}
        collect(self.parts.objective)
        if self.rank == 0:
            save_weights(self.folder / "weights.safetensors", merged_state(self.parts.whole))
            save_weights(self.folder / "objective.safetensors", self.parts.objective.state_dict())
        if best.exists():
            self._save_references("references-last.safetensors")
            ranks.wait_for_all()  # the first rank writes the best weights
            device = str(step.generator.device)
            load_merged(self.parts.whole, read_tensors(best, "resume the training", device))
            objective = read_tensors(self.folder / "best-objective.safetensors", "resume the training", device)
            self.parts.objective.load_state_dict(objective)
        known = self._save_references("references.safetensors")
        if data.test is not None and reported(data.test) != "ids":
            queried = points_of(data.test, embed_all(network, self._loader(data.test), step.prepare))
            metrics["test"] = figures_of(self.parts, (data.test, queried), (data.train, known))
            metrics["test points"] = len(data.test) if data.test.labels is None else int((data.test.labels >= 0).sum())
        self._verdict(metrics)
        if self.best_against_bank:
            metrics["released protocol"] = self.best_against_bank
        if self.rank == 0:
            counts = {name: len(part) for name, part in data._asdict().items() if isinstance(part, Dataset)}
            write_json(self.folder / "metrics.json", metrics)
            write_card(self.folder, self.run, self.parts.about, metrics, counts)
        return metrics

    def _verdict(self, metrics: dict[str, Any]) -> None:
        """Say which weights were kept, and whether they are better than guessing."""
        if kept := metrics.get("kept"):
            of = f"the weights after epoch {kept['epoch']} of {self.epoch}" if kept["epoch"] else "the linear map of the frozen features"
            within = f"; the best, {kept['best']:.4f}, is within one standard error, and the later counts" if "best" in kept else ""
            self.log.message(f"kept {of}: {kept['figure']} {kept['value']:.4f} on {kept['points']:,} validation points{within}")
        if metrics.get("test") and (line := at_chance(metrics["test"], self.data.train, self.data.test)):
            self.log.message(f"warning: on the test part, {line}")

    def _save_references(self, name: str) -> Points:
        """Embed the training part with the network as it stands, and keep that."""
        known = points_of(self.data.train, embed_all(self.parts.network, self.parts.loader, self.parts.step.prepare))
        if self.rank == 0:
            save_weights(self.folder / name, kept_references(known, binary=self.run.codes.learn))
        return known
