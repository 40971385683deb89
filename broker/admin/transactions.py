"""`POST /transactions/{id}/abort`: ends an open transaction, as `echoless transactions abort` does.

A new session of the id begins at its coordinator, this broker: the producer is fenced, and what it has open is aborted. The
answer comes once that is decided; markers follow.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from http import HTTPStatus
from importlib import import_module
from json import dumps

from aiohttp import web

from echoless.broker.admin.callers import caller_of, note_change
from echoless.broker.admin.refusal import RefusalError
from echoless.broker.admin.transaction_documents import refused_id
from echoless.broker.admin.view import BrokerView
from echoless.broker.handlers.transaction_rows import STATE_NAMES
from echoless.broker.network.turns import in_thread
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.transaction_records import TransactionStatus, TransactionValue


class TransactionPages:
    """The path, for one broker."""

    def __init__(self, broker: BrokerView) -> None:
        self._broker = broker

    def routes(self) -> list[web.RouteDef]:
        """The route of the method below."""
        return [web.post("/transactions/{transactional_id}/abort", self.abort)]

    async def abort(self, request: web.Request) -> web.Response:
        """Fences the producer of the id and aborts its open transaction: 202, or 409 without one."""
        name = request.match_info["transactional_id"]
        caller_of(request).require_transactional_id(name)
        value = self._open(name)
        requests = await in_thread(
            partial(import_module, "echoless.coordinators.transactions.requests")
        )
        answered = self._broker.transactions.ask(
            name, requests.InitTransactionalId(value.timeout_ms)
        )
        answer = await answered if isinstance(answered, Awaitable) else answered
        if answer.error_code is ErrorCode.NONE:
            text = f"{name!r}: its transaction has ended by itself; its producer is fenced now"
            raise RefusalError(HTTPStatus.CONFLICT, text)
        if answer.error_code is not ErrorCode.CONCURRENT_TRANSACTIONS:
            raise refused_id(name, answer.error_code)
        note_change(request, dumps({"aborted": name, "producer_id": value.producer_id}))
        return web.json_response(
            {"transactional_id": name, "producer_id": value.producer_id}, status=HTTPStatus.ACCEPTED
        )

    def _open(self, name: str) -> TransactionValue:
        """The id's record. Raises `RefusalError` if it has nothing that could be aborted."""
        state = self._broker.transactions.look_at(name)
        if isinstance(state, ErrorCode):
            raise refused_id(name, state)
        value = state.value
        assert value is not None, "only known ids have a state"
        if value.status is TransactionStatus.PREPARE_COMMIT:
            text = f"{name!r} is being committed, which cannot be changed"
            raise RefusalError(HTTPStatus.CONFLICT, text)
        if value.status is not TransactionStatus.ONGOING:
            text = f"{name!r} has no open transaction: it is {STATE_NAMES[value.status]}"
            raise RefusalError(HTTPStatus.CONFLICT, text)
        return value
