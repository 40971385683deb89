"""The codes in answers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.oracle.messages import Plain
from tests.oracle.transactions.step import Request


def codes_of(answer: Plain) -> set[int]:
    """All codes in an answer."""
    if isinstance(answer, Mapping):
        return {
            code
            for key, value in answer.items()
            for code in ({value} if key.endswith("error_code") else codes_of(value))
        }
    if isinstance(answer, list):
        return {code for one in answer for code in codes_of(one)}
    return set()


def first_code(step: Request, answer: Any) -> int:
    """The code that a client goes by."""
    match step.api:
        case "produce":
            return int(answer[0]["error_code"])
        case "add_partitions_to_txn" if step.version < 4:
            rows = answer["results_by_topic_v3_and_below"]
            return int(rows[0]["results_by_partition"][0]["partition_error_code"])
        case "add_partitions_to_txn":
            rows = answer["results_by_transaction"][0]["topic_results"]
            return int(rows[0]["results_by_partition"][0]["partition_error_code"])
        case "txn_offset_commit":
            return int(answer["topics"][0]["partitions"][0]["error_code"])
    return int(answer.get("error_code", 0))
