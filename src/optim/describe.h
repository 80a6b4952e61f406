/* SPDX-License-Identifier: MIT */
/* What optimizers of several ranks have in common, as fields of a description. */
#ifndef CZ_OPTIM_DESCRIBE_H
#define CZ_OPTIM_DESCRIBE_H

#include "czero/optim.h"
#include "group/description.h"

/* Its name, and what decides which state there is and how it travels; its functions cannot be compared. */
void cz__describe_rule(cz__description *description, const cz_rule *rule);
/* How many parameter groups there are, and their members. */
void cz__describe_members(cz__description *description, const cz_optim *optim);
/* All values of all groups, with the names of those that were added. */
void cz__describe_hypers(cz__description *description, const cz_optim *optim);

#endif
