from nabla_core.testing import check_rule, records

from acme_rules import LossCeiling


def test_reports_a_loss_above_the_ceiling_only():
    check_rule(
        LossCeiling(),
        bad=records(loss=[1.0, 10.1]),
        good=records(loss=[1.0, 9.9]),
        rule="ACM101",
    )
