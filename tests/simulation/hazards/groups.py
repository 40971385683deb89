"""Coordinators of groups that are killed, paused and cut off, and members that come late: hazards H1 to H7 and H12.

A client asks the coordinator's core directly, without a network between them; what is broken is between the brokers.
Promises G1 (no partition has two owners), G2 (no generation is given twice), G4 (a commit that was answered is read
back by every later coordinator) and G5 (no commit of an earlier generation is accepted).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from echoless.coordinators.groups.consumer.requests import JOINS, LEAVES
from echoless.protocol.errors import ErrorCode
from tests.simulation.hazards.group_stage import SETTINGS, Groups
from tests.simulation.stage import Stage

if TYPE_CHECKING:
    from echoless.coordinators.groups.answers import JoinAnswer


def a_zombie_coordinator_wakes() -> list[str]:
    """H1. A coordinator sleeps through the end of its session; its successor has a newer commit."""
    with Stage(**SETTINGS) as stage:
        groups = Groups(stage)
        groups.committed(1)
        zombie = groups.coordinator
        assert zombie.process is not None
        zombie.process.pause()
        stage.until(lambda: groups.is_led(but_by=zombie))
        assert groups.fetched() == 1
        groups.committed(2)
        asked = groups.fetch(zombie)
        stage.run(0.1)
        zombie.process.resume()
        stage.until(asked.done)
        groups.look(asked)
        return groups.judged()


def a_commit_that_no_replica_has() -> list[str]:
    """H2. A commit is in the coordinator's log alone when that is killed."""
    with Stage(**SETTINGS) as stage:
        groups = Groups(stage)
        groups.committed(1)
        coordinator = groups.coordinator
        for other in stage.machines.values():
            if other is not coordinator:
                stage.part(coordinator, other)
        groups.commit(2)
        stage.run(0.3)
        stage.kill(coordinator)
        stage.until(lambda: groups.is_led(but_by=coordinator))
        groups.fetched()
        return groups.judged()


def a_generation_is_cut_short() -> list[str]:
    """H3. A coordinator has given a generation to a member, and is killed before the assignment."""
    with Stage(**SETTINGS) as stage:
        groups = Groups(stage)
        coordinator = groups.coordinator
        first = groups.join()
        stage.until(first.done)
        stage.kill(coordinator)
        stage.until(lambda: groups.is_led(but_by=coordinator))
        second: JoinAnswer | None = None
        while second is None:
            asked = groups.join()
            stage.until(asked.done)
            second = asked.result() if asked.result().error_code is ErrorCode.NONE else None
        if second.generation_id <= first.result().generation_id:
            groups.findings.append(
                f"generation {second.generation_id} is given to {second.member_id} after "
                f"{first.result().generation_id} was given to {first.result().member_id}"
            )
        return groups.judged()


def a_commit_comes_after_the_next_generation() -> list[str]:
    """H4. A slow member's commit reaches the next coordinator when another generation has begun, and committed."""
    with Stage(**SETTINGS) as stage:
        groups = Groups(stage)
        slow: JoinAnswer = groups.ask_until(groups.join())
        groups.synced(slow)
        groups.committed(1, slow.member_id, slow.generation_id)
        second = groups.join()
        stage.run(0.1)
        first = groups.ask_until(groups.join(slow.member_id))
        other: JoinAnswer = groups.ask_until(second)
        groups.synced(first if first.members else other)
        groups.committed(2, other.member_id, other.generation_id)
        groups.fail_over()
        late = groups.commit(1, slow.member_id, slow.generation_id)
        stage.until(late.done)
        if ErrorCode.NONE in late.result().error_codes:
            groups.findings.append(
                f"a commit in generation {slow.generation_id} is accepted in {other.generation_id}"
            )
        groups.fetched()
        return groups.judged()


def an_old_heartbeat_acknowledges_a_revocation() -> list[str]:
    """H5. A member has to give its partition up, and what it sent before it had that arrives again."""
    with Stage(**SETTINGS) as stage:
        groups = Groups(stage)
        groups.joined("b")
        epoch = groups.heartbeat("a", JOINS, "t").member_epoch
        assert groups.heartbeat("b", LEAVES).error_code is ErrorCode.NONE
        answer = groups.heartbeat("a", epoch)
        assert answer.assignment == {(groups.topic_id, 0)}
        answer = groups.heartbeat("a", answer.member_epoch, "another", owns=True)
        assert answer.assignment == frozenset()
        groups.fail_over()
        groups.heartbeat("a", epoch)
        groups.look_for_second_owner("c")
        return groups.judged()


def an_old_timer_strikes() -> list[str]:
    """H6. A member gives its partition up in time, twice; the first time's timer would strike in the second."""
    with Stage(**SETTINGS) as stage:
        groups = Groups(stage)
        groups.joined("a")
        epoch = 1
        for pause_s in (1.0, 4.5):
            answer = groups.heartbeat("a", epoch, "another", owns=True)
            assert answer.assignment == frozenset()
            stage.run(pause_s)
            answer = groups.heartbeat("a", epoch)
            if answer.error_code is not ErrorCode.NONE:
                groups.findings.append(
                    f"a member that gave its partition up in {pause_s} s is answered {answer.error_code!r}"
                )
                break
            answer = groups.heartbeat("a", answer.member_epoch, "t")
            assert answer.assignment == {(groups.topic_id, 0)}
            epoch = answer.member_epoch
        return groups.judged()


def a_load_reads_more_than_is_committed() -> list[str]:
    """H7. A new coordinator has a commit that is not committed, answers, and is killed in turn."""
    with Stage(**SETTINGS) as stage:
        groups = Groups(stage)
        groups.committed(1)
        old = groups.coordinator
        last, new = (one for one in stage.machines.values() if one is not old)
        stage.part(last, old)
        stage.part(last, new)
        groups.commit(2)
        stage.run(0.3)
        stage.kill(old)
        stage.until(lambda: groups.is_led(but_by=old))
        assert groups.coordinator is new
        asked = groups.fetch(new)
        stage.until(asked.done)
        read = groups.look(asked)
        stage.kill(new)
        stage.join(last, old)
        stage.until(lambda: groups.is_led(but_by=new))
        later = groups.fetched()
        if read is not None and later < read:
            groups.findings.append(f"{read} was read back, and {later} from the next coordinator")
        return groups.judged()


def a_copier_resumes_twice() -> list[str]:
    """H12. A copier's committed position and producer state are older than its copies; two resume from them at once."""
    with Stage(**SETTINGS) as stage:
        groups, copier = Groups(stage), stage.producer("copier")
        copier.send(2)
        groups.committed(2)
        copies, leader = copier.send(3), stage.leader
        stage.kill(leader)
        stage.until(lambda: stage.is_led_by_another_than(leader) and groups.is_led(but_by=leader))
        assert groups.fetched() == 2  # so what was copied since is copied again
        end = stage.end_of(stage.leader)
        for copy in (*copies, *copies):
            code = groups.ask_until(copier.ask(stage.leader, copy))
            if (code, stage.end_of(stage.leader)) != (ErrorCode.NONE, end):
                groups.findings.append(f"copy {copy.number} is answered {code}, and stored twice")
        groups.committed(5)
        return groups.judged()
