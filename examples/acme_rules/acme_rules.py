from nabla_core import Rule, Severity, hookimpl

CEILING = Rule(
    id="ACM101", name="acme-rules-loss-ceiling", severity=Severity.MEDIUM, since="0.1",
    summary="The loss is above the ceiling.", rationale="Such a run never recovers.",
    fix="Lower the learning rate.", limits="Silent without a loss.", needs=("loss",))

class LossCeiling:
    rules = (CEILING,)
    def step(self, record):
        loss = record.signals.get("loss", 0.0)
        if loss > 10.0:
            yield CEILING.issue(f"Loss is {loss:.3g}, limit 10.", step=record.step, loss=loss)

@hookimpl
def nabla_rules(): return [CEILING]
@hookimpl
def nabla_detectors(session): return [LossCeiling()]
