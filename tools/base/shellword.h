/* SPDX-License-Identifier: Apache-2.0 */
/* shellword.h: words of commands that we print for people to run. */
#ifndef SHELLWORD_H
#define SHELLWORD_H

/* text as one word of a shell command: itself, or in quotes where a shell would change it.
 * Lives until the program ends. */
const char *shellword(const char *text);

#endif
