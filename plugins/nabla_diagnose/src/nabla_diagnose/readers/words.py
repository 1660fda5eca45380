"""Words that occur in the names of logged columns."""

from __future__ import annotations

__all__ = [
    "EPOCHS",
    "ERRORS",
    "EXPONENTIAL",
    "HIGHER",
    "INNERS",
    "LOSSES",
    "LOWER",
    "NO_LOSS",
    "PLAYERS",
    "QUALIFIERS",
    "RATES",
    "REWARDS",
    "RIVALS",
    "SMOOTHED",
    "STEPS",
    "TEST",
    "TIMED",
    "TIMES",
    "TOTALS",
    "TRAIN",
    "VALIDATION",
]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _phrases(text: str) -> frozenset[str]:
    return frozenset(phrase.strip() for phrase in text.split(","))


TRAIN = _words("train training tr trn")
VALIDATION = _words("val valid validation validate validating eval evaluation evaluating dev vld")
TEST = _words("test testing tst")

STEPS = _phrases(
    "step, steps, global step, global steps, train step, trainer global step, train global step, "
    "total steps, total timesteps, timesteps, num timesteps, time total timesteps, iteration, "
    "iterations, iter, iters, it, optimizer step, update, updates, num updates, n updates, "
    "current step, current steps, timesteps total, training iteration, train iter, "
    "train iteration, gradient steps"
)
EPOCHS = _phrases("epoch, epochs, trainer epoch, train epoch, total epochs, ep")
INNERS = _phrases("batch, batches, batch idx, batch index, minibatch, i, mb, index, idx, unnamed 0")
TIMES = _phrases(
    "time, wall time, walltime, timestamp, runtime, elapsed, elapsed time, relative time, time s, "
    "datetime, date, created at, seconds, secs, train runtime, time total s"
)
RATES = _phrases("lr, learning rate, learningrate, optimizer lr, lr group 0, x lr 0")

TIMED = _words("batch reader data time")
"""Words with which a ``cost`` is one of seconds."""
LOSSES = _words("loss losses nll objective cost")
ERRORS = _words("ce bce xent crossentropy mse mae rmse rmsle perplexity ppl bpc")
EXPONENTIAL = _words("perplexity ppl")
"""Error measures that are an exponential of the loss: it is judged where both are logged."""
NO_LOSS = _words("scale scaler weight delta std var min max best")
TOTALS = _words("total overall all sum combined full main global")
QUALIFIERS = _words(
    "step epoch batch avg average mean running ema smooth smoothed smoothing current cur per iter "
    "item scalar raw metrics metric log logs stats tb the of loop progress"
)
SMOOTHED = _words("ema smooth smoothed running avg average epoch")

LOWER = _words(
    "loss losses nll error err wer cer mse mae rmse mape ppl perplexity fid kid lpips bpc bpb eer "
    "ece brier distance hinge cost regret violation violations ter per rmsle logloss ce bce "
    "crossentropy objective divergence kl"
)
HIGHER = _words(
    "acc accuracy f1 fscore precision recall auc auroc auprc roc map ap map50 iou miou dice bleu "
    "rouge rougel rouge1 rouge2 meteor psnr ssim reward return score r2 mcc matthews kappa em "
    "exact success winrate mrr ndcg hit hits top top1 top5 sensitivity specificity spearman "
    "pearson correlation cider chrf elbo likelihood jaccard win acc1 acc5 spbleu"
)

PLAYERS = _words(
    "actor critic policy pi vf qf qf1 qf2 q value gen generator disc discriminator g d adv "
    "adversarial fake real gloss dloss lossv losspi lossq"
)
RIVALS = _words("gen generator disc discriminator")
"""Players that occur in games only, so that one of them is enough to tell."""
REWARDS = _words("reward return rewards returns ret episode episodes episodic rew eprewmean")
