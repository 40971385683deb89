"""ACLs by the Kafka protocol: requests for DescribeAcls, CreateAcls and DeleteAcls."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.support.raw_client import RawConnection, nested

VERSION = 3
TOPIC, CLUSTER = 2, 4
LITERAL, PREFIXED, MATCH, ANY = 3, 4, 2, 1
READ, WRITE, DENY, ALLOW = 3, 4, 2, 3


class Row(NamedTuple):
    """An ACL as the wire has it."""

    name: str = "orders"
    resource_type: int = TOPIC
    pattern_type: int = LITERAL
    principal: str = "User:alice"
    host: str = "*"
    operation: int = READ
    permission: int = ALLOW


async def create(kafka: RawConnection, *rows: Row, version: int = VERSION) -> list[int]:
    """The code for each."""
    creation = nested("create_acls", version, "AclCreation")
    response = await kafka.call(
        "create_acls",
        version,
        creations=tuple(
            creation(
                resource_type=row.resource_type,
                resource_name=row.name,
                resource_pattern_type=row.pattern_type,
                principal=row.principal,
                host=row.host,
                operation=row.operation,
                permission_type=row.permission,
            )
            for row in rows
        ),
    )
    return [one.error_code.value for one in response.results]


def acl_filter(**fields: Any) -> dict[str, Any]:
    """The fields of a filter; what is not given is left open."""
    return {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
        **fields,
    }


async def describe(
    kafka: RawConnection, version: int = VERSION, **fields: Any
) -> tuple[int, set[Row]]:
    """The code, and the ACLs that match."""
    response = await kafka.call("describe_acls", version, **acl_filter(**fields))
    rows = [
        Row(
            resource.resource_name,
            resource.resource_type,
            resource.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in response.resources
        for acl in resource.acls
    ]
    assert len(rows) == len(set(rows))
    return response.error_code.value, set(rows)


async def delete(
    kafka: RawConnection, *filters: dict[str, Any], version: int = VERSION
) -> list[tuple[int, set[Row]]]:
    """The code for each filter, and the ACLs that it removed."""
    cls = nested("delete_acls", version, "DeleteAclsFilter")
    response = await kafka.call(
        "delete_acls", version, filters=tuple(cls(**acl_filter(**one)) for one in filters)
    )
    results = []
    for result in response.filter_results:
        assert {acl.error_code.value for acl in result.matching_acls} <= {0}
        rows = {
            Row(
                acl.resource_name,
                acl.resource_type,
                acl.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )
            for acl in result.matching_acls
        }
        results.append((result.error_code.value, rows))
    return results
