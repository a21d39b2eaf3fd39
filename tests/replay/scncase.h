/* SPDX-License-Identifier: Apache-2.0 */
/* scncase.h: a case under way, shared by those who run it (scnscript.c) and those who read its
 * directives (scn.c). Domains need scn.h only. */
#ifndef REPLAY_SCNCASE_H
#define REPLAY_SCNCASE_H

#include "scn.h"

#define SCN_WORDS_MAX 64u /* of a directive: as many as a mask has bits */

struct scn {
	struct verdict *verdict;
	const char *id;
	/* the directive at hand */
	const struct script_line *line;
	const char *words[SCN_WORDS_MAX], *options[SCN_WORDS_MAX];
	size_t n_words, n_options;
	uint64_t words_used, options_used;
	/* what became of it */
	char wrong[256], expected[256], differs[256];
	char found[4096];
	size_t n_found;
	bool found_cut;
};

/* Takes a line's words apart. Every word with a '=' that does not begin with it is an option. */
void scncase_read(struct scn *c, const struct script_line *l);
/* Something on the line that nobody asked for; NULL: nothing. */
const char *scncase_left_over(const struct scn *c);
void scncase_clear_found(struct scn *c);

#endif
