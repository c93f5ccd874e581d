package parity

import "slices"

// clauses is the whole suite, in the order of the package documentation. The
// names of cases are what a report shows; none is ever dropped in silence.
func clauses() []clause {
	return slices.Concat(sessionClauses(), grantClauses(), revocationClauses(), waitClauses(), failureClauses())
}

func sessionClauses() []clause {
	return []clause{
		{"SESS-01", "open_returns_an_unguessable_id_and_the_granted_TTL", []example{
			{"session ids are unguessable and distinct", idsAreUnguessable},
			{"the granted TTL is the asked one", grantedTTL},
			{"the listing shows owner, TTL and metadata", sessionIsListed},
			{"TTLs are rounded up, bounded and defaulted", ttlRules},
		}},
		{"SESS-02", "lives_as_guaranteed_and_dies_within_TTL_plus_2s", []example{
			{"a heartbeat guarantees close to the TTL", guaranteeIsCloseToTTL},
			{"a silent session lives as long as guaranteed and dies in time, for all at once", diesInTime},
			{"a heartbeat moves the end", heartbeatMovesTheEnd},
			{"a session dies in time though its server has died", diesInTimeWithItsServer},
			{"a heartbeat received long ago reaches no store", staleHeartbeat},
		}},
		{"SESS-03", "dead_is_terminal_stable_and_everywhere", []example{
			{"heartbeat false is terminal", deadIsTerminal},
			{"an unknown session is dead", unknownIsDead},
			{"a dead session is told so while others wait", deadWhileOthersWait},
			{"a malformed id is invalid", malformedID},
			{"an unreachable store is neither dead nor alive", unreachableIsNeither},
		}},
		{"SESS-04", "a_silent_session_dies", []example{
			{"other calls of the session, and heartbeats of others, keep nothing alive", silentDies},
		}},
		{"SESS-05", "death_frees_all_locks_in_one_step", []example{
			{"session death releases all N locks", deathFreesAll},
			{"a listing shows all of them or none when the session dies", deathIsOneStep},
			{"a listing shows all of them or none when the session closes", closeIsOneStep},
		}},
		{"SESS-06", "close_counts_once", []example{
			{"close frees and counts, then returns 0", closeCounts},
			{"close of a dead or unknown session returns 0", closeOfDead},
		}},
		{"SESS-07", "locks_of_is_read_from_the_store", []example{
			{"every change through one server shows on the other at once", locksOfIsFresh},
			{"the list is complete, in key order and shows each grant", locksOfIsComplete},
		}},
		{"SESS-08", "a_session_survives_its_server", []example{
			{"any server renews a session and releases its locks", anyServerServes},
			{"a session outlives the server that opened it", outlivesItsServer},
		}},
		{"SESS-09", "a_dead_session_is_granted_nothing", []example{
			{"a killed session is granted nothing", killedGetsNothing},
			{"a closed session is granted nothing", closedGetsNothing},
			{"an unknown session is granted nothing", unknownGetsNothing},
			{"a retry after death does not return the old grant", retryAfterDeath},
			{"a session that dies during the attempt is granted nothing", deathRacesAttempt},
			{"a session that dies in a queue is granted nothing", deathInQueue},
		}},
	}
}

func grantClauses() []clause {
	return []clause{
		{"LOCK-01", "at_most_one_grant_per_key", []example{
			{"a held key is granted to nobody else", heldIsHeld},
			{"of many sessions at once one is granted", oneOfManyAtOnce},
			{"single-holder mutual exclusion under concurrency", mutualExclusion},
			{"a concurrent history is one that a fenced lock can have", quietHistory},
		}},
		{"LOCK-02", "tokens_strictly_increase", []example{
			{"token strictly increasing across acquire and release cycles", tokensOverCycles},
			{"token strictly increasing across a revocation", tokensOverRevocation},
			{"token strictly increasing across session death and close", tokensOverDeath},
			{"token strictly increasing across the loss of a server", tokensOverServerLoss},
			{"token strictly increasing across a raised floor", tokensOverRaisedFloor},
			{"token strictly increasing under concurrency", tokensUnderConcurrency},
		}},
		{"LOCK-03", "extending_never_changes_the_token", []example{
			{"extend returning the same token", extendKeepsToken},
		}},
		{"LOCK-04", "a_request_id_is_granted_once", []example{
			{"the same request returns the same grant, from any server", sameRequestSameGrant},
			{"another request of the same session is held", sessionDoesNotReenter},
			{"a request id is scoped to session and key", requestIDScope},
			{"the same request sent many times at once makes one grant", sameRequestAtOnce},
			{"requests of one session at once make one grant", oneSessionAtOnce},
		}},
		{"LOCK-05", "held_says_who", []example{
			{"held names owner, session, token and time", heldSaysWho},
		}},
		{"LOCK-06", "release_compares_in_the_store", []example{
			{"wrong-session release failing", wrongSessionRelease},
			{"stale-releaser attempt failing", staleRelease},
			{"release of what is over is false, never an error", releaseOfOver},
			{"one of many releases at once is true", releaseAtOnce},
		}},
		{"LOCK-07", "extend_moves_the_end_later", []example{
			{"extend on a lease moves the end, never earlier", extendMovesTheEnd},
			{"an extended grant outlives its first lease", extendedOutlives},
			{"extend without a lease changes nothing", extendWithoutLease},
			{"extend on a lost grant is lost", extendOfOver},
			{"a fresh grant can be extended at once from any server", extendAtOnce},
			{"a blip is not lost", extendDuringBlip},
		}},
		{"LOCK-08", "a_lapsed_lease_is_free", []example{
			{"a lapsed grant is taken over with a higher token", lapsedIsTaken},
			{"a lapsed grant cannot be extended, released or handed over", lapsedIsOver},
			{"a lapsed grant is no grant for its own request", lapsedRequest},
		}},
		{"LOCK-09", "handoff_is_one_atomic_step", []example{
			{"handoff ends one grant and starts another", handoffMoves},
			{"handoff of a grant that is over is lost and changes nothing", handoffOfOver},
			{"handoff to a dead session changes nothing", handoffToDead},
			{"nobody gets in between", handoffIsAtomic},
			{"of two handoffs at once one succeeds", handoffAtOnce},
		}},
		{"LOCK-10", "read_gives_a_plausible_picture", []example{
			{"read returning a plausible picture", readIsPlausible},
		}},
		{"LOCK-11", "keys_are_exact", []example{
			{"bad keys and namespaces are invalid", badNames},
			{"bad requests are invalid before any store is asked", badRequests},
			{"keys that look alike are independent", keysAreExact},
			{"namespaces are independent", namespacesAreApart},
		}},
		{"LOCK-12", "a_cancelled_acquire_leaves_no_grant", []example{
			{"abandon ends the grant of its request and no other", abandonEnds},
			{"a timed-out acquire leaves nothing", timedOutLeavesNothing},
			{"an acquire cancelled at the moment of its grant leaves nothing once withdrawn", cancelRacesGrant},
			{"a broken call releases nothing", cancelReleasesNothing},
		}},
		{"LOCK-13", "a_late_duplicate_is_found_by_a_heartbeat", []example{
			{"a late duplicate lives two heartbeats at most", lateDuplicate},
		}},
	}
}

func revocationClauses() []clause {
	return []clause{
		{"REV-01", "revoke_ends_raises_and_records_in_one_step", []example{
			{"revoke advancing the floor", revokeAdvancesFloor},
			{"one of many revocations at once succeeds, with one record", revokeAtOnce},
			{"a revocation and a release never both succeed", revokeRacesRelease},
			{"operator and reason are required before any store is asked", badRevocations},
		}},
		{"REV-02", "compare_and_revoke", []example{
			{"another expected token changes nothing", revokeOtherToken},
			{"revoking a free key reports not held", revokeFreeKey},
		}},
		{"REV-03", "the_deposed_holder_is_told", []example{
			{"extend is lost and release false", deposedHolder},
			{"the feed of every server tells it", feedTells},
			{"a watcher of the session is told on every server", watcherIsTold},
		}},
		{"REV-04", "revocations_are_listed_and_survive", []example{
			{"newest first, in pages", revocationPages},
			{"a page token of elsewhere is invalid", foreignPageToken},
			{"they survive sessions and servers", revocationsSurvive},
			{"a raised floor is listed in every namespace", raisedFloorIsListed},
		}},
	}
}

func waitClauses() []clause {
	return []clause{
		{"WAIT-01", "acquire_returns_within_its_wait", []example{
			{"acquire-with-wait completing within maxWait", waitReturnsInTime},
			{"acquire-with-wait granted when the key is free or released", waitEndsWithGrant},
		}},
		{"WAIT-02", "the_end_of_a_grant_wakes", []example{
			{"a release wakes a waiter on any server", endWakes("released")},
			{"a revocation wakes a waiter on any server", endWakes("revoked")},
			{"a withdrawal wakes a waiter on any server", endWakes("withdrawn")},
			{"a closed session wakes a waiter on any server", endWakes("closed")},
			{"a release between the first attempt and the registration is not missed", releaseInTheGap(1)},
			{"a release between the second attempt and the wait is not missed", releaseInTheGap(2)},
			{"a lapse and a session's death wake a waiter", silentEndWakes},
			{"a lapse and a session's death reach who heeds the port alone", silentEndIsHeeded},
			{"every end after the attempt fires every registration", endFires},
		}},
		{"WAIT-03", "no_wake_without_an_end", []example{
			{"an extension or an unrelated write does not wake", extensionDoesNotWake},
		}},
		{"WAIT-04", "first_come_first_served", []example{
			{"waiters of one server are served in order", firstComeFirstServed},
			{"no waiter of another server starves", nobodyStarves},
		}},
		{"WAIT-05", "interruption_leaves_nothing_behind", []example{
			{"acquire-with-wait respecting interruption", interruptionEnds},
			{"a cancelled registration is gone", cancelledStaysQuiet},
		}},
	}
}

func failureClauses() []clause {
	return []clause{
		{"FAIL-01", "a_blip_is_retryable_and_honest", []example{
			{"transport failure surfacing as contention and never as lost", cutOff},
			{"a lost answer says that its outcome is unknown", answered},
			{"a retry after a lost answer gets the same grant", lostAnswer},
			{"a wait without a store ends in time, and without a grant", waitDuringFault},
		}},
		{"FAIL-02", "nothing_fails_open", []example{
			{"no grant without the store", noGrantWithoutStore},
			{"no life without the store", noLifeWithoutStore},
		}},
		{"FAIL-03", "service_returns_without_a_restart", []example{
			{"the same client serves after the fault", serviceReturns},
			{"what ended during the fault reaches waiters and watchers after it", missedWake},
			{"a history with faults is one that a fenced lock can have", faultyHistory},
		}},
	}
}
