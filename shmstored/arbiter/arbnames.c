/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbnames.c: the words for the numbers of arbiter.h. They are in the log, in messages and on command lines: never changed.
 */
#include "arbiter.h"

#define NAME(table, i) ((size_t)(i) < sizeof(table) / sizeof(*(table)) && (table)[i] ? (table)[i] : "?")

const char *arb_state_name(enum arb_state s)
{
	static const char *const names[] = {
		[ARB_RUNNING] = "RUNNING",
		[ARB_ALLOC] = "ALLOC",
		[ARB_ALLOC_FREE] = "ALLOC_FREE",
		[ARB_BLOCKED] = "BLOCKED",
		[ARB_BUFN_THROW] = "BUFN_THROW",
		[ARB_BUFN_WAIT] = "BUFN_WAIT",
		[ARB_BUFN] = "BUFN",
		[ARB_SPLIT_THROW] = "SPLIT_THROW",
		[ARB_REMOVE_THROW] = "REMOVE_THROW",
	};

	return s == ARB_UNKNOWN ? "UNKNOWN" : NAME(names, s);
}

const char *arb_outcome_name(enum arb_outcome o)
{
	static const char *const names[] = {
		[ARB_OK] = "OK",           [ARB_PENDING] = "PENDING",   [ARB_RETRY] = "RETRY",
		[ARB_SPLIT] = "SPLIT",     [ARB_NOMEM] = "NOMEM",       [ARB_TOOBIG] = "TOOBIG",
		[ARB_AGAIN] = "AGAIN",     [ARB_TIMEDOUT] = "TIMEDOUT", [ARB_CANCELED] = "CANCELED",
		[ARB_REMOVED] = "REMOVED", [ARB_DOWN] = "DOWN",         [ARB_ERROR] = "ERROR",
		[ARB_INVALID] = "INVALID",
	};

	return NAME(names, o);
}

const char *arb_knob_name(enum arb_knob k)
{
	static const char *const names[] = {
		[ARB_KNOB_MAX_BYPASS] = "max_bypass",     [ARB_KNOB_SUSPECT_TICKS] = "suspect_ticks",
		[ARB_KNOB_SPLIT_TICKS] = "split_ticks",   [ARB_KNOB_RETRY_LIMIT] = "retry_limit",
		[ARB_KNOB_EARLY_DETECT] = "early_detect", [ARB_KNOB_OS_PROBE] = "os_probe",
	};

	return NAME(names, k);
}

const char *arb_op_name(enum arb_op op)
{
	static const char *const names[] = {
		[ARB_OP_POOL_CREATE] = "POOL_CREATE",
		[ARB_OP_POOL_RESIZE] = "POOL_RESIZE",
		[ARB_OP_POOL_REMOVE] = "POOL_REMOVE",
		[ARB_OP_KNOB] = "KNOB",
		[ARB_OP_TASK_BEGIN] = "TASK_BEGIN",
		[ARB_OP_TASK_END] = "TASK_END",
		[ARB_OP_BIND] = "BIND",
		[ARB_OP_UNBIND] = "UNBIND",
		[ARB_OP_RESERVE] = "RESERVE",
		[ARB_OP_RELEASE] = "RELEASE",
		[ARB_OP_RESIZE] = "RESIZE",
		[ARB_OP_SEAL] = "SEAL",
		[ARB_OP_PIN] = "PIN",
		[ARB_OP_UNPIN] = "UNPIN",
		[ARB_OP_OWN] = "OWN",
		[ARB_OP_SPILLED] = "SPILLED",
		[ARB_OP_READY] = "READY",
		[ARB_OP_RETRY_BEGIN] = "RETRY_BEGIN",
		[ARB_OP_RETRY_END] = "RETRY_END",
		[ARB_OP_WAIT_ON] = "WAIT_ON",
		[ARB_OP_WAIT_OFF] = "WAIT_OFF",
		[ARB_OP_SPILL_BEGIN] = "SPILL_BEGIN",
		[ARB_OP_SPILL_END] = "SPILL_END",
		[ARB_OP_OSBLOCK] = "OSBLOCK",
		[ARB_OP_CANCEL] = "CANCEL",
		[ARB_OP_INJECT] = "INJECT",
		[ARB_OP_TICK] = "TICK",
		[ARB_OP_SHUTDOWN] = "SHUTDOWN",
	};

	return NAME(names, op);
}
