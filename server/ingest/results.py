"""What became of an operation, as it is answered and kept."""

from __future__ import annotations

from collections.abc import Sequence

from scrubjay import v1
from scrubjay.merge import Outcome, WriteResult


def result_of(results: Sequence[WriteResult]) -> v1.OperationResult:
    """How an operation ended whose writes ended so."""
    outcomes = {result.outcome for result in results}
    status = _STATUS[outcomes.pop()] if len(outcomes) == 1 else v1.OPERATION_STATUS_APPLIED_CONCURRENT
    return v1.OperationResult(
        status=status,
        registers=[
            v1.RegisterOutcome(field=result.write.field, outcome=v1.Outcome.ValueType(result.outcome))
            for result in results
            if _STATUS[result.outcome] != status
        ],
    )


_STATUS = {
    Outcome.APPLIED: v1.OPERATION_STATUS_APPLIED,
    Outcome.APPLIED_CONCURRENT: v1.OPERATION_STATUS_APPLIED_CONCURRENT,
    Outcome.SUPERSEDED: v1.OPERATION_STATUS_SUPERSEDED,
}


def duplicate(first: v1.OperationResult) -> v1.OperationResult:
    """The answer to an operation that was answered before."""
    return v1.OperationResult(
        status=v1.OPERATION_STATUS_DUPLICATE,
        first_status=first.status,
        commit_stamp=first.commit_stamp,
        registers=first.registers,
        merged_into=first.merged_into,
        reason=first.reason,
    )


def rejected(reason: str) -> v1.OperationResult:
    """The answer to an operation that is refused for good."""
    return v1.OperationResult(status=v1.OPERATION_STATUS_REJECTED, reason=reason)


def outside(scope: str) -> v1.OperationResult:
    """The answer to an operation that leads out of what its device may see."""
    return rejected(f"memory.scope: {scope!r} lies outside of this device's scopes")
