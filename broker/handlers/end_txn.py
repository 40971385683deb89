"""EndTxn (26), versions 0-5: commits or aborts the transaction of a transactional id.

v2: PRODUCER_FENCED. v3: flexible. v4 (KIP-890): TRANSACTION_ABORTABLE. v5 (KIP-890, the second generation of the protocol):
the end raises the epoch, and the answer has the producer id and epoch to go on with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.group_answers import packed
from echoless.broker.handlers.permits import denied
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.handlers.transaction_notes import note_answer
from echoless.broker.handlers.transaction_rows import EPOCH_BUMP_VERSION, code_of_version
from echoless.broker.network.denial import Denial
from echoless.broker.network.request import Answer, Outcome, Request
from echoless.coordinators.transactions.answers import TransactionAnswer
from echoless.coordinators.transactions.requests import EndTransaction
from echoless.protocol.acl import AclOperation, ResourceType
from echoless.protocol.transaction_answers import encode_end_txn_response

if TYPE_CHECKING:
    from echoless.broker.authorization.access import Rights
    from echoless.broker.services import Services

API = declared(__name__)

_FENCED_FROM, _ABORTABLE_FROM = 2, 4
_EPOCH_BUMP_FROM: Final = 5


def handle(request: Request, services: Services) -> Outcome:
    """A code once the end is decided; markers follow."""
    body, version = request.body, request.version
    asked = EndTransaction(
        body.producer_id,
        body.producer_epoch,
        body.committed,
        EPOCH_BUMP_VERSION if version >= _EPOCH_BUMP_FROM else 0,
        request.peer.connection_id,
    )

    def pack(answer: TransactionAnswer) -> bytes:
        note_answer(services, request, body.transactional_id, asked, answer)
        code = code_of_version(
            answer.error_code, version, fenced_from=_FENCED_FROM, abortable_from=_ABORTABLE_FROM
        )
        return encode_end_txn_response(version, code, answer.producer_id, answer.producer_epoch)

    return packed(services.transactions.ask(body.transactional_id, asked), pack)


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error, and no identity."""
    return {"error_code": refusal.error.code, "producer_id": -1, "producer_epoch": -1}


def permit(request: Request, rights: Rights, _services: Services) -> Denial | None:
    """Needs Write on the transactional id."""
    name = request.body.transactional_id
    if rights.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        return None
    return Denial(denied(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID))


SERVED = Served(API, handle, refuse, permit=permit)
